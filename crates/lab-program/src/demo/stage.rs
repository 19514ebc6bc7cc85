//! The shopper, and the screen with the nodes' counters, during the acts.

use std::time::{Duration, Instant};

use tokio::time::{MissedTickBehavior, interval};

use super::acts::INTRUDER;
use super::mesh::Mesh;
use super::metrics::History;
use super::screen::Screen;
use super::shopper::{Shopper, Tally};

/// The environment of every act.
pub(super) struct DemoStage<'mesh> {
    pub(super) mesh: &'mesh mut Mesh,
    pub(super) shopper: Shopper,
    pub(super) screen: Screen,
    /// Failures before the shopper started, while the first page was requested until it came.
    failed_before: u64,
    history: History,
}

impl<'mesh> DemoStage<'mesh> {
    pub(super) async fn open(mesh: &'mesh mut Mesh, shopper: Shopper) -> anyhow::Result<Self> {
        let reading = mesh.metrics().await?;
        let failed_before = reading.failed_but_of(INTRUDER);
        let mut history = History::default();
        history.push(Instant::now(), reading, shopper.tally().versions);
        Ok(Self {
            mesh,
            shopper,
            screen: Screen::new(),
            failed_before,
            history,
        })
    }

    /// Shows the traffic for `length`; returns what the shopper saw meanwhile.
    pub(super) async fn play(&mut self, length: Duration) -> anyhow::Result<Tally> {
        self.history.restart();
        let begun = self.shopper.tally();
        let started = Instant::now();
        let mut frames = interval(Duration::from_millis(500));
        frames.set_missed_tick_behavior(MissedTickBehavior::Delay);
        while started.elapsed() < length {
            frames.tick().await;
            let reading = self.mesh.metrics().await?;
            self.history
                .push(Instant::now(), reading, self.shopper.tally().versions);
            self.screen.show(&self.history);
        }
        self.screen.settle(&self.history);
        Ok(self.shopper.tally().since(&begun))
    }

    /// As [`DemoStage::play`] for the rest of an act that began at `began`, at least one second.
    pub(super) async fn play_out(
        &mut self,
        began: Instant,
        length: Duration,
    ) -> anyhow::Result<Tally> {
        let left = length.saturating_sub(began.elapsed());
        self.play(left.max(Duration::from_secs(1))).await
    }

    /// Requests that failed anywhere in the mesh since the shopper started, as counted by the nodes. The intruder's
    /// are left out, since they should fail.
    pub(super) async fn failed(&self) -> anyhow::Result<u64> {
        let failed = self.mesh.metrics().await?.failed_but_of(INTRUDER);
        Ok(failed.saturating_sub(self.failed_before))
    }
}
