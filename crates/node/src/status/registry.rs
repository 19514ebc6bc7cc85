//! Status of a registry that is followed beside a folder, by `heddle up` or by a control plane.

use std::collections::BTreeMap;
use std::fmt;

use heddle_telemetry::exposition::{DescriptorEncoder, gauge, gauges};
use heddle_telemetry::families::node;
use serde::{Deserialize, Serialize};

#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize, Serialize)]
pub struct RegistryStatus {
    /// The etcd member that is or was last connected.
    pub endpoint: String,
    /// Common prefix of its keys.
    pub prefix: String,
    /// Whether changes arrive.
    pub connected: bool,
    /// Seconds since `connected` last changed.
    pub for_s: u64,
    /// Why it is not connected.
    pub problem: Option<String>,
    /// The etcd revision up to which all changes are known.
    pub revision: i64,
    /// Providers whose entries are valid on their own.
    pub providers: usize,
    /// Number of invalid, left out or unused entries, by reason.
    #[serde(default)]
    pub problems_by_reason: BTreeMap<String, usize>,
    /// Numbers of providers of each Service.
    #[serde(default)]
    pub services: Vec<ProvidingStatus>,
    /// Providers that are left out: the first hundred.
    #[serde(default)]
    pub left_out: Vec<LeftOutStatus>,
    /// All possible reasons: the metrics have a series for each.
    #[serde(skip)]
    pub reasons: Vec<&'static str>,
}

/// The providers that registered under the name of a Service.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize, Serialize)]
pub struct ProvidingStatus {
    /// `namespace/name`.
    pub service: String,
    /// Providers that are called.
    pub called: usize,
    /// All providers, valid or not.
    pub registered: usize,
}

/// A registered provider that is not in the mesh.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize, Serialize)]
pub struct LeftOutStatus {
    /// Name that its workload would have: `namespace/service.provider`.
    pub workload: String,
    /// Why it is left out.
    pub reason: String,
}

impl RegistryStatus {
    /// Writes the metrics of a registry.
    ///
    /// # Errors
    /// When writing to the encoder's output fails.
    pub fn encode(&self, encoder: &mut DescriptorEncoder<'_>) -> fmt::Result {
        let called: usize = self.services.iter().map(|service| service.called).sum();
        for (family, value) in [
            (&node::REGISTRY_CONNECTED, usize::from(self.connected)),
            (&node::REGISTRY_PROVIDERS, self.providers),
            (&node::REGISTRY_PROVIDERS_CALLED, called),
        ] {
            gauge(encoder, family, value)?;
        }
        let problems = self.reasons.iter().map(|reason| {
            let count = self.problems_by_reason.get(*reason);
            ([("reason", *reason)], count.copied().unwrap_or_default())
        });
        gauges(encoder, &node::REGISTRY_PROBLEMS, problems)
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use heddle_telemetry::exposition;

    use super::*;

    #[test]
    fn every_reason_has_a_number() {
        let status = RegistryStatus {
            connected: true,
            providers: 3,
            problems_by_reason: BTreeMap::from([("taken".to_owned(), 2)]),
            services: vec![ProvidingStatus {
                service: "shop/web".to_owned(),
                called: 1,
                registered: 5,
            }],
            reasons: vec!["no_lease", "taken", "uncalled"],
            ..RegistryStatus::default()
        };
        let text = exposition::render(move |encoder| status.encode(encoder));
        for line in [
            "# TYPE heddle_registry_connected gauge",
            "heddle_registry_connected 1",
            "heddle_registry_providers 3",
            "heddle_registry_providers_called 1",
            "heddle_registry_problems{reason=\"taken\"} 2",
            "heddle_registry_problems{reason=\"uncalled\"} 0",
        ] {
            assert!(text.lines().any(|one| one == line), "{line}\n{text}");
        }
        let reasons = text.matches("heddle_registry_problems{").count();
        assert_eq!(reasons, 3);
    }
}
