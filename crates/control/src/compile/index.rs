//! What there is, each object once.

use std::collections::{BTreeMap, BTreeSet};

use heddle_model::{GROUP, Name, Namespace, ServiceAccountName, ServiceName, WorkloadName};

use super::{Scope, did_you_mean};
use crate::manifest::node::FieldPath;
use crate::manifest::{Body, Kind, Object, core, gateway, local};
use crate::problem::Report;

/// The annotation of a Service that says how its endpoints are balanced.
pub(super) const BALANCER_ANNOTATION: &str = "heddle.dev/load-balancer";

/// Objects by kind and name.
pub(super) struct Index<'o> {
    pub(super) services: BTreeMap<ServiceName, (&'o Object, &'o core::Service)>,
    pub(super) workloads: BTreeMap<WorkloadName, (&'o Object, &'o local::LocalWorkload)>,
    pub(super) accounts: BTreeSet<ServiceAccountName>,
    pub(super) slices: Vec<(&'o Object, &'o core::EndpointSlice)>,
    pub(super) routes: Vec<(&'o Object, &'o gateway::HttpRoute)>,
    pub(super) grants: Vec<(&'o Object, &'o gateway::ReferenceGrant)>,
}

impl<'o> Index<'o> {
    /// Sorts objects by kind; of two with one name, the second is an error that names the first.
    pub(super) fn build(objects: &'o [Object], report: &mut Report) -> Self {
        let mut index = Self {
            services: BTreeMap::new(),
            workloads: BTreeMap::new(),
            accounts: BTreeSet::new(),
            slices: Vec::new(),
            routes: Vec::new(),
            grants: Vec::new(),
        };
        let mut seen: BTreeMap<(Kind, &Namespace, &Name), &Object> = BTreeMap::new();
        for object in objects {
            let mut scope = Scope::of(object, report);
            check_annotations(object, &mut scope);
            match seen.entry((object.kind, &object.namespace, &object.name)) {
                std::collections::btree_map::Entry::Vacant(free) => {
                    free.insert(object);
                }
                std::collections::btree_map::Entry::Occupied(first) => {
                    let first = &first.get().origin;
                    scope.error(
                        &FieldPath::of("metadata.name"),
                        format!(
                            "this object is written twice: first in {}:{}",
                            first.file.display(),
                            first.line()
                        ),
                        "remove one of the two, or rename it",
                    );
                    continue;
                }
            }
            index.insert(object);
        }
        index
    }

    fn insert(&mut self, object: &'o Object) {
        let (namespace, name) = (object.namespace.clone(), object.name.clone());
        match &object.body {
            Body::Service(body) => {
                self.services
                    .insert(ServiceName { namespace, name }, (object, body));
            }
            Body::LocalWorkload(body) => {
                self.workloads
                    .insert(WorkloadName { namespace, name }, (object, body));
            }
            Body::ServiceAccount => {
                self.accounts.insert(ServiceAccountName { namespace, name });
            }
            Body::Namespace => {}
            Body::EndpointSlice(body) => self.slices.push((object, body)),
            Body::HttpRoute(body) => self.routes.push((object, body)),
            Body::ReferenceGrant(body) => self.grants.push((object, body)),
        }
    }
}

/// Annotations of our own group are ours to check: a misspelt one would silently do nothing.
fn check_annotations(object: &Object, scope: &mut Scope<'_>) {
    let known: &[&str] = match object.kind {
        Kind::Service => &[BALANCER_ANNOTATION],
        _ => &[],
    };
    for key in object.metadata.annotations.keys() {
        let ours = key.split_once('/').is_some_and(|(group, _)| group == GROUP);
        if ours && !known.contains(&key.as_str()) {
            let remedy = did_you_mean(key, known.iter().copied(), "remove it");
            scope.error(
                &FieldPath::of("metadata.annotations").field(key),
                format!("a {} has no such annotation", object.kind.as_str()),
                remedy,
            );
        }
    }
}
