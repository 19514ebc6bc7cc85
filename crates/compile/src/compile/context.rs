//! The inputs for compiling parts of a Service or a route.

use std::collections::BTreeMap;

use heddle_model::{Namespace, Service, ServiceName, WorkloadName};

use super::index::Index;
use super::selector::{Owners, Selectable};
use super::slice::SlicePorts;
use crate::manifest::Object;

/// The inputs for finding a Service's endpoints.
pub(super) struct ServiceContext<'a> {
    pub(super) index: &'a Index<'a>,
    pub(super) selectable: &'a Selectable<'a>,
    pub(super) owners: &'a Owners<'a>,
    /// Limits of concurrent requests, of the workloads that set one.
    pub(super) rooms: &'a BTreeMap<WorkloadName, u32>,
    pub(super) slices: &'a [SlicePorts],
}

/// The inputs for checking parts of a route.
pub(super) struct RouteContext<'a> {
    pub(super) index: &'a Index<'a>,
    pub(super) services: &'a [Service],
    pub(super) object: &'a Object,
    /// Namespaces of the Services that the route is attached to.
    pub(super) parent_namespaces: Vec<Namespace>,
}

impl RouteContext<'_> {
    pub(super) fn service(&self, name: &ServiceName) -> Option<&Service> {
        let found = self
            .services
            .binary_search_by(|service| service.name.cmp(name))
            .ok()?;
        self.services.get(found)
    }
}
