//! Which workloads a selector selects.

use std::collections::BTreeMap;

use heddle_model::{Namespace, Workload, WorkloadName};

use super::MAX_CANDIDATES;

/// Workloads by each of their labels, so that a selector looks only at those that have its rarest.
pub(super) struct Selectable<'w> {
    all: &'w [Workload],
    by_label: BTreeMap<(&'w Namespace, &'w str, &'w str), Vec<&'w Workload>>,
}

impl<'w> Selectable<'w> {
    /// Takes the workloads of all namespaces.
    pub(super) fn new(workloads: &'w [Workload]) -> Self {
        let mut by_label: BTreeMap<_, Vec<_>> = BTreeMap::new();
        for workload in workloads {
            for (key, value) in &workload.labels {
                let label = (&workload.name.namespace, key.as_str(), value.as_str());
                by_label.entry(label).or_default().push(workload);
            }
        }
        Self {
            all: workloads,
            by_label,
        }
    }

    /// A workload of another namespace that has every label of the selector, among the first few.
    pub(super) fn elsewhere(
        &self,
        namespace: &Namespace,
        selector: &BTreeMap<String, String>,
    ) -> Option<&'w WorkloadName> {
        self.all
            .iter()
            .take(MAX_CANDIDATES)
            .filter(|workload| workload.name.namespace != *namespace)
            .find(|workload| has_all(workload, selector))
            .map(|workload| &workload.name)
    }

    /// The workloads of a namespace that have every label of the selector, by name; none for an
    /// empty one, as Kubernetes has it.
    pub(super) fn select(
        &self,
        namespace: &Namespace,
        selector: &BTreeMap<String, String>,
    ) -> Vec<&'w Workload> {
        let rarest = selector
            .iter()
            .map(|(key, value)| {
                let label = (namespace, key.as_str(), value.as_str());
                self.by_label.get(&label).map_or(&[][..], Vec::as_slice)
            })
            .min_by_key(|workloads| workloads.len());
        rarest
            .unwrap_or_default()
            .iter()
            .filter(|workload| has_all(workload, selector))
            .copied()
            .collect()
    }
}

fn has_all(workload: &Workload, selector: &BTreeMap<String, String>) -> bool {
    selector
        .iter()
        .all(|(k, v)| workload.labels.get(k) == Some(v))
}
