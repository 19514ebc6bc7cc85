//! What is not done: each is logged once, and told for as long as it is so.

use std::collections::BTreeMap;

use crate::remarks::NotDone;

/// Most notes that are told. The log has all.
const MAX_TOLD: usize = 20;

/// Notes by the setting that they are about.
#[derive(Debug, Default)]
pub(super) struct Notes {
    /// As of the last sweep.
    known: BTreeMap<String, String>,
    /// Of this sweep so far.
    found: BTreeMap<String, String>,
}

impl Notes {
    /// Says of a setting of a pod why it is not done.
    pub(super) fn pod(&mut self, setting: &str, pod: &str, why: &str) {
        self.add(format!("{setting} of {pod}"), why);
    }

    /// Says of a setting why it is not done.
    pub(super) fn add(&mut self, setting: String, why: &str) {
        if self.known.get(&setting).is_none_or(|known| known != why) {
            tracing::warn!("{setting}: {why}");
        }
        self.found.insert(setting, why.to_owned());
    }

    /// Says of a setting why it is not done. The log has it already.
    pub(super) fn add_logged(&mut self, setting: String, why: String) {
        self.found.insert(setting, why);
    }

    /// The sweep is over: what it did not find is so no more.
    pub(super) fn end_sweep(&mut self) {
        self.known = std::mem::take(&mut self.found);
    }

    /// What is told.
    pub(super) fn told(&self) -> impl Iterator<Item = NotDone> {
        let all = self.known.iter().take(MAX_TOLD);
        let all = all.map(|(setting, why)| NotDone {
            setting: setting.clone(),
            why: why.clone(),
        });
        let more = self.known.len().saturating_sub(MAX_TOLD);
        all.chain((more > 0).then(|| NotDone {
            setting: format!("{more} more"),
            why: "the log of the agent has them".to_owned(),
        }))
    }
}
