//! For which callers a Worker has used processor time.
//!
//! At each sweep the processor time of the thread is divided by what the ready gate has charged for each piece of work.
//! What the kernel did between two pieces, to find out which sockets are ready, is so paid for by the callers, too.

use heddle_model::Class;

use super::Worker;
use crate::env::{Used, WorkKey};

impl Worker {
    /// Charges the callers with the processor time since the last call.
    pub(super) fn settle_cpu(&self) {
        let mut used = self.cpu_used.borrow_mut();
        self.gate.settle(&mut used);
        let own = self.stats.class();
        // A Worker for offline callers has no others, except on their way.
        let class = |used: &Used| match used.key == WorkKey::OWN || own == Class::Offline {
            true => own,
            false => used.class,
        };
        let charges = used.iter().map(|used| (&used.owner, class(used), used.ns));
        self.registry.add_cpu(charges);
        used.clear();
    }
}
