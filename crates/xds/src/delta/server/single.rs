//! Resources that are sent one by one, after a response with several was refused.

use std::collections::BTreeSet;
use std::mem;

use crate::delta::Name;

/// What becomes of resources of a client that refuses whole responses, of which it may use the good ones nevertheless.
#[derive(Debug, Default)]
pub(super) struct Single {
    /// The resources of the last response, until it is answered.
    pub(super) last: Vec<Name>,
    /// Those of refused responses, to be sent again each by itself.
    pub(super) due: BTreeSet<Name>,
    /// Those that were refused by themselves, until another version is accepted.
    pub(super) refused: BTreeSet<Name>,
}

impl Single {
    pub(super) fn answered(&mut self, is_refused: bool) {
        let last = mem::take(&mut self.last);
        match (is_refused, last.len()) {
            (false, _) => self.refused.retain(|name| !last.contains(name)),
            (true, 1) => self.refused.extend(last),
            (true, _) => self.due.extend(last),
        }
    }

    pub(super) fn retain(&mut self, is_kept: impl Fn(&Name) -> bool) {
        self.due.retain(&is_kept);
        self.refused.retain(is_kept);
    }

    pub(super) fn remove(&mut self, name: &Name) {
        self.due.remove(name);
        self.refused.remove(name);
    }
}
