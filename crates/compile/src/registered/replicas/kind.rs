//! What decides which Services and policies select a provider.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

use heddle_model::{Endpoint, Mesh, Namespace, ServiceName, Workload};

use crate::manifest::{Body, Object};

/// All of a provider that matters to other objects than itself, apart from its name, addresses and node. A clone is a
/// reference count.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(super) struct Kind(Arc<Parts>);

#[derive(Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
struct Parts {
    namespace: Namespace,
    labels: BTreeMap<String, String>,
    annotations: BTreeMap<String, String>,
    account: Option<String>,
    ports: Vec<(Option<String>, i64)>,
}

impl Kind {
    /// The kind of a LocalWorkload; `None` for another object.
    pub(super) fn of(object: &Object) -> Option<Self> {
        let Body::LocalWorkload(body) = &object.body else {
            return None;
        };
        let ports = body.spec.ports.iter();
        Some(Kind(Arc::new(Parts {
            namespace: object.namespace.clone(),
            labels: object.metadata.labels.clone(),
            annotations: object.metadata.annotations.clone(),
            account: body.spec.service_account_name.clone(),
            ports: ports.map(|port| (port.name.clone(), port.port)).collect(),
        })))
    }
}

/// The endpoints that one provider is in one Service.
pub(super) struct Selected {
    /// The place of the Service in the mesh.
    pub(super) service: usize,
    /// Each with the place of its port.
    pub(super) endpoints: Vec<(usize, Endpoint)>,
}

/// The labels that a Service selects.
type Selector = BTreeMap<String, String>;

/// A label, in its namespace.
type Label<'o> = (&'o Namespace, &'o str, &'o str);

/// The Services of a folder by one of the labels that each selects.
pub(super) struct Selectors<'o> {
    by_label: HashMap<Label<'o>, Vec<(usize, &'o Selector)>>,
}

impl<'o> Selectors<'o> {
    pub(super) fn of(objects: &'o [Arc<Object>], mesh: &Mesh) -> Self {
        let mut by_label: HashMap<_, Vec<_>> = HashMap::new();
        for object in objects {
            let Body::Service(body) = &object.body else {
                continue;
            };
            let selector = &body.spec.selector;
            let name = ServiceName {
                namespace: object.namespace.clone(),
                name: object.name.clone(),
            };
            let services = &mesh.services;
            let at = services.binary_search_by(|service| service.name.cmp(&name));
            if let (Ok(at), Some((key, value))) = (at, selector.first_key_value()) {
                let label = (&object.namespace, key.as_str(), value.as_str());
                by_label.entry(label).or_default().push((at, selector));
            }
        }
        Selectors { by_label }
    }

    /// The endpoints of an example of a kind; `None` if it is not an endpoint of each port of each Service that selects
    /// it.
    pub(super) fn of_kind(
        &self,
        kind: &Kind,
        mesh: &Mesh,
        example: &Workload,
    ) -> Option<Vec<Selected>> {
        let labels = &kind.0.labels;
        let of_labels = labels.iter().filter_map(|(key, value)| {
            let label: Label<'_> = (&kind.0.namespace, key, value);
            self.by_label.get(&label)
        });
        let services = of_labels.flatten();
        let is_selecting = |selector: &Selector| {
            selector
                .iter()
                .all(|(key, value)| labels.get(key) == Some(value))
        };
        let services = services.filter(|(_, selector)| is_selecting(selector));
        let endpoints = |&(service, _): &(usize, _)| {
            let ports = mesh.services.get(service)?.ports.iter().enumerate();
            let endpoints = ports.map(|(at, port)| {
                let mut own = port.endpoints.iter();
                let own = own.find(|one| one.workload.as_ref() == Some(&example.name));
                Some((at, own?.clone()))
            });
            let endpoints = endpoints.collect::<Option<_>>()?;
            Some(Selected { service, endpoints })
        };
        services.map(endpoints).collect()
    }
}
