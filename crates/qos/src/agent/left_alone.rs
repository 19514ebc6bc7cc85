//! Knobs that are left alone for a while: another program has written them, or they could not be set.

use std::collections::BTreeMap;
use std::time::Duration;

use super::notes::Notes;
use crate::arbiter::{Key, Refusal};
use crate::now::Now;

#[cfg(test)]
mod tests;

/// How long a knob is left alone.
pub(super) const PAUSE: Duration = Duration::from_secs(60);

/// What is left alone.
#[derive(Debug, Default)]
pub(super) struct LeftAlone(BTreeMap<Key, Pause>);

#[derive(Debug)]
struct Pause {
    until: Duration,
    /// The reason, as in output.
    why: String,
}

impl LeftAlone {
    /// Leaves a knob alone from now on.
    pub(super) fn add(&mut self, refusal: &Refusal, key: &Key, now: Now) {
        tracing::warn!("{refusal}: it is left alone for {} s", PAUSE.as_secs());
        let why = match refusal {
            Refusal::Foreign(_, value) => {
                let value = key.knob.shown(*value);
                format!("another program set it to {value}, which stays")
            }
            Refusal::Failed(_, error) => format!("it cannot be set: {error}"),
            Refusal::Gone(_) => "its control group is gone".to_owned(),
        };
        let until = now.since + PAUSE;
        self.0.insert(key.clone(), Pause { until, why });
    }

    /// What was left alone long enough is tried again.
    pub(super) fn begin_sweep(&mut self, now: Now) {
        self.0.retain(|_, pause| now.since < pause.until);
    }

    /// Forgets knobs.
    pub(super) fn forget(&mut self, is_forgotten: impl Fn(&Key) -> bool) {
        self.0.retain(|key, _| !is_forgotten(key));
    }

    /// Whether a knob is left alone.
    pub(super) fn has(&self, key: &Key) -> bool {
        self.0.contains_key(key)
    }

    /// Tells what is left alone now.
    pub(super) fn tell(&self, notes: &mut Notes) {
        for (key, Pause { why, .. }) in &self.0 {
            notes.add_logged(key.to_string(), format!("{why}; tried again in a minute"));
        }
    }

    #[cfg(test)]
    pub(super) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
}
