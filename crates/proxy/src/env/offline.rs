//! The way to a Worker for offline callers.

use heddle_model::Class;

use super::{Alarm, Env};
use crate::clock::Millis;
use crate::intake::Intake;

/// Interval at which it is checked whether there is a Worker for offline callers, in milliseconds, and how often.
const LOOK_MS: Millis = 10;
const LOOKS: u32 = 20;

impl Env {
    /// A Worker for offline callers, if this one is not; one is started if there is none. `None` if that takes too long:
    /// the connection is then carried here.
    pub(crate) async fn offline_worker(&self, alarm: &Alarm) -> Option<Intake> {
        if self.stats.class() == Class::Offline {
            return None;
        }
        for _ in 0..LOOKS {
            match self.offline_workers.choose() {
                Some(intake) => return Some(intake),
                None => self.offline_workers.want(),
            }
            alarm.wait_until(self.clock.now_ms() + LOOK_MS).await;
        }
        None
    }
}
