//! The ports of a snapshot by name: those of Services, and those of workloads of this node that belong to no Service.

use std::collections::HashMap;

use foldhash::fast::RandomState;
use heddle_model::{ServiceName, WorkloadName};

use crate::heap::is_loose;

/// Index of the entry for everything outside of the mesh.
pub(super) const OUTSIDE: usize = 0;

/// Index of a Service's port in a snapshot. A port that is in two snapshots, one after the other, has the same index in
/// both, so that what leads to it need not be compiled again.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct PortIndex(u32);

/// Gives each port an index, which it keeps as long as it has its name. An index that became free is given to another
/// port at once: nothing refers to it in the next snapshot.
#[derive(Debug, Clone)]
pub(super) struct Names {
    services: HashMap<(ServiceName, u16), PortIndex, RandomState>,
    workloads: HashMap<WorkloadName, PortIndex, RandomState>,
    free: Vec<PortIndex>,
    /// Number of indices that were ever in use.
    end: usize,
}

impl PortIndex {
    /// The index of the entry at position `at`. There are fewer than 2^32 entries.
    pub(super) fn at(at: usize) -> Self {
        PortIndex(u32::try_from(at).unwrap_or(u32::MAX))
    }

    pub(crate) fn get(self) -> usize {
        self.0 as usize
    }

    pub(crate) fn number(self) -> u32 {
        self.0
    }
}

impl Default for Names {
    fn default() -> Self {
        Names {
            services: HashMap::default(),
            workloads: HashMap::default(),
            free: Vec::new(),
            end: OUTSIDE + 1,
        }
    }
}

impl Names {
    /// The index of a Service's port.
    pub(super) fn find(&self, service: &ServiceName, port: u16) -> Option<PortIndex> {
        // The key is owned, but its parts are reference-counted: nothing is allocated.
        self.services.get(&(service.clone(), port)).copied()
    }

    /// The index of the ports of a workload that belong to no Service.
    pub(super) fn workload(&self, workload: &WorkloadName) -> Option<PortIndex> {
        self.workloads.get(workload).copied()
    }

    /// Gives back room for names that are gone.
    pub(super) fn fit(&mut self) {
        if is_loose(self.services.capacity(), self.services.len()) {
            self.services.shrink_to_fit();
        }
    }

    #[cfg(test)]
    pub(super) fn room(&self) -> usize {
        self.services.capacity()
    }

    /// Number of indices that are or were in use.
    pub(super) fn end(&self) -> usize {
        self.end
    }

    pub(super) fn add(&mut self, service: &ServiceName, port: u16) -> PortIndex {
        let (free, end) = (&mut self.free, &mut self.end);
        let index = self.services.entry((service.clone(), port));
        *index.or_insert_with(|| next(free, end))
    }

    /// Frees the index of a Service's port. Returns it.
    pub(super) fn remove(&mut self, service: &ServiceName, port: u16) -> Option<PortIndex> {
        let index = self.services.remove(&(service.clone(), port))?;
        self.free.push(index);
        Some(index)
    }

    pub(super) fn add_workload(&mut self, workload: &WorkloadName) -> PortIndex {
        let (free, end) = (&mut self.free, &mut self.end);
        let index = self.workloads.entry(workload.clone());
        *index.or_insert_with(|| next(free, end))
    }

    /// Frees the indices of the workloads that are not there any more. Returns them.
    pub(super) fn retain_workloads(
        &mut self,
        is_there: impl Fn(&WorkloadName) -> bool,
    ) -> Vec<PortIndex> {
        let mut freed = Vec::new();
        self.workloads.retain(|name, index| {
            let is_there = is_there(name);
            if !is_there {
                freed.push(*index);
            }
            is_there
        });
        self.free.extend(&freed);
        freed
    }
}

fn next(free: &mut Vec<PortIndex>, end: &mut usize) -> PortIndex {
    free.pop().unwrap_or_else(|| {
        let index = PortIndex::at(*end);
        *end += 1;
        index
    })
}
