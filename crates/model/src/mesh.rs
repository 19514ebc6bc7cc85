//! The whole of what a node serves, as one snapshot.

use serde::{Deserialize, Serialize};

use crate::{Service, ServiceName, Workload, WorkloadName};

#[cfg(test)]
mod tests;

/// A snapshot of the mesh. Both lists are sorted by name and hold each name once.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct Mesh {
    /// Counts snapshots of one source from 1. It says which configuration is being served, and is
    /// no part of what the mesh means.
    pub generation: u64,
    /// Every Service, with its endpoints and routes.
    pub services: Vec<Service>,
    /// Every workload that this process hosts.
    pub workloads: Vec<Workload>,
}

impl Mesh {
    /// The Service of that name.
    pub fn service(&self, name: &ServiceName) -> Option<&Service> {
        let found = self
            .services
            .binary_search_by(|service| service.name.cmp(name))
            .ok()?;
        self.services.get(found)
    }

    /// The workload of that name.
    pub fn workload(&self, name: &WorkloadName) -> Option<&Workload> {
        let found = self
            .workloads
            .binary_search_by(|workload| workload.name.cmp(name))
            .ok()?;
        self.workloads.get(found)
    }
}
