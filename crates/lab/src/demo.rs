//! `heddle-lab demo`: a small bookstore on this machine, with real traffic through one proxy.
//!
//! The story is told in order: start the mesh, send a shopper through it, change a route while
//! the shopper goes on, see the traffic follow, and judge. It fails when any page failed or the
//! traffic did not follow, so that it is a test as well.

mod manifests;
mod mesh;
mod metrics;
mod place;
mod screen;
mod shopper;
mod verdict;

use std::path::PathBuf;
use std::time::{Duration, Instant};

use anyhow::Context;
use clap::Args;
use tokio::signal::unix::{SignalKind, signal};
use tokio::time::{MissedTickBehavior, interval, sleep};

use manifests::Manifests;
use mesh::{Mesh, Status};
use metrics::History;
use place::Place;
use screen::Screen;
use shopper::Shopper;
use verdict::{Phase, Verdict};

/// The workload that calls the bookstore.
const SHOPPER: &str = "bookstore/shopper";
/// The Service that the shopper calls.
const FRONT: &str = "bookstore/productpage";
/// The share of readers that get reviews v2, before and after the edit.
const SHARES: [f64; 2] = [0.1, 0.5];
/// How long a route's change may take to show in what the shopper sees.
const SETTLING: Duration = Duration::from_secs(1);

/// Show a small bookstore mesh on this machine, with real traffic.
#[derive(Args)]
pub(crate) struct Options {
    /// Go on until Ctrl-C
    #[arg(long)]
    stay: bool,
    /// Seconds to send traffic, 6 to 86400
    #[arg(long, default_value_t = 60, value_parser = clap::value_parser!(u64).range(6..=86_400))]
    seconds: u64,
    /// Pages that the shopper opens per second, 10 to 2000
    #[arg(long, default_value_t = 50, value_parser = clap::value_parser!(u32).range(10..=2_000))]
    rate: u32,
    /// The heddle program
    #[arg(long, value_name = "PATH", default_value = "heddle")]
    heddle: PathBuf,
}

/// Tells the story.
///
/// # Errors
/// Another demo runs, the mesh does not start, a page failed, or the traffic did not follow the route.
pub(crate) fn run(options: &Options) -> anyhow::Result<()> {
    tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .context("cannot start the runtime")?
        .block_on(tell(options))
}

async fn tell(options: &Options) -> anyhow::Result<()> {
    let _place = Place::take(&manifests::addresses())?;
    let manifests = Manifests::write()?;
    let mut mesh = Mesh::start(&options.heddle, manifests.dir(), manifests.scratch())?;
    let mut interrupt = signal(SignalKind::interrupt())?;
    let mut terminate = signal(SignalKind::terminate())?;
    let outcome = tokio::select! {
        outcome = scenes(options, &manifests, &mut mesh) => outcome.map(Some),
        _ = interrupt.recv() => Ok(None),
        _ = terminate.recv() => Ok(None),
    };
    if outcome.is_err() {
        // What the mesh said last is the best hint.
        eprintln!("{}", mesh.last_words());
    }
    let stopped = mesh.stop().await;
    if let Some(verdict) = outcome? {
        verdict.into_result()?;
    }
    stopped
}

/// Everything that happens while the mesh is up.
async fn scenes(
    options: &Options,
    manifests: &Manifests,
    mesh: &mut Mesh,
) -> anyhow::Result<Verdict> {
    let status = mesh.ready().await?;
    let page = format!(
        "http://{}/products/1",
        status.address(Some(SHOPPER), FRONT)?
    );
    shopper::first_page(&page)
        .await
        .context("the bookstore does not answer")?;
    introduce(mesh, &status, manifests)?;

    let mut stage = Stage::open(mesh, Shopper::start(&page, options.rate)).await?;
    let half = Duration::from_secs(options.seconds) / 2;

    stage
        .screen
        .say("90 % of the readers get reviews v1, 10 % get v2");
    let before = stage.play(half, SHARES[0]).await?;

    let generation = mesh.metrics().await?.generation();
    manifests.set_weights(50, 50)?;
    let effect = mesh.newer_than(generation).await?;
    stage.screen.say(&format!(
        "{} edited: 50 / 50, in effect after {} ms",
        manifests.route().display(),
        effect.as_millis()
    ));
    sleep(SETTLING.saturating_sub(effect)).await;
    let after = stage.play(half.saturating_sub(SETTLING), SHARES[1]).await?;

    let verdict = stage.judge([before, after]).await?;
    stage.screen.say(&verdict.to_string());
    if options.stay {
        stage.screen.say("staying until Ctrl-C");
        stage.play(Duration::MAX, SHARES[1]).await?;
    }
    Ok(verdict)
}

/// Says where things are, and what to try from another terminal.
fn introduce(mesh: &Mesh, status: &Status, manifests: &Manifests) -> anyhow::Result<()> {
    let anybody = status.address(None, FRONT)?;
    println!(
        "The bookstore is up, from the manifests in {}",
        manifests.dir().display()
    );
    println!("Try from another terminal:");
    println!("  curl http://{anybody}/products/1");
    if let Some(proxy) = status.forward_proxy(SHOPPER) {
        println!("  http_proxy=http://{proxy} curl -H 'end-user: editor' http://reviews/reviews/1");
    }
    println!("  {}\n", mesh.status_command());
    Ok(())
}

/// The shopper, and the screen that shows what the proxy counts.
struct Stage<'mesh> {
    mesh: &'mesh Mesh,
    shopper: Shopper,
    /// What had failed before the shopper came: the first page is asked for until it is there.
    failed_before: u64,
    history: History,
    screen: Screen,
}

impl<'mesh> Stage<'mesh> {
    async fn open(mesh: &'mesh Mesh, shopper: Shopper) -> anyhow::Result<Self> {
        let reading = mesh.metrics().await?;
        let failed_before = reading.failed();
        let mut history = History::default();
        history.push(Instant::now(), reading, shopper.tally().versions);
        Ok(Self {
            mesh,
            shopper,
            failed_before,
            history,
            screen: Screen::new(),
        })
    }

    /// Shows the traffic for `length`, and says what the shopper saw meanwhile.
    async fn play(&mut self, length: Duration, expected: f64) -> anyhow::Result<Phase> {
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
        Ok(Phase {
            seen: self.shopper.tally().since(&begun),
            expected,
        })
    }

    async fn judge(&self, phases: [Phase; 2]) -> anyhow::Result<Verdict> {
        let failed = self.mesh.metrics().await?.failed();
        Ok(Verdict::new(
            self.shopper.tally(),
            failed.saturating_sub(self.failed_before),
            phases,
        ))
    }
}
