//! What is said of a registry that is followed beside a folder, by `heddle up` and by a control plane alike.

use std::collections::BTreeMap;
use std::fmt;

use heddle_telemetry::exposition::{DescriptorEncoder, gauge, gauges};
use serde::{Deserialize, Serialize};

/// The registry that is followed beside the folder.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize, Serialize)]
pub struct RegistryStatus {
    /// The member of etcd that is asked, or was last.
    pub endpoint: String,
    /// What its keys begin with.
    pub prefix: String,
    /// Whether changes are heard.
    pub connected: bool,
    /// For how long it is as it is.
    pub for_s: u64,
    /// Why it is not reached.
    pub problem: Option<String>,
    /// The revision of etcd up to which everything is known.
    pub revision: i64,
    /// Providers that are right for themselves.
    pub providers: usize,
    /// What in it is wrong, left out, or of no use, by reason.
    #[serde(default)]
    pub problems_by_reason: BTreeMap<String, usize>,
    /// How many of its providers each Service has.
    #[serde(default)]
    pub services: Vec<ProvidingStatus>,
    /// Providers that are left out, of which there may be a hundred.
    #[serde(default)]
    pub left_out: Vec<LeftOutStatus>,
    /// Every reason that there may be; the metrics have a number for each of them.
    #[serde(skip)]
    pub reasons: Vec<&'static str>,
}

/// The providers that registered under the name of a Service.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize, Serialize)]
pub struct ProvidingStatus {
    /// `namespace/name`.
    pub service: String,
    /// Those that are called.
    pub called: usize,
    /// All of them, right or wrong.
    pub registered: usize,
}

/// A provider that registered and is not in the mesh.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize, Serialize)]
pub struct LeftOutStatus {
    /// The name that its workload would have, `namespace/service.provider`.
    pub workload: String,
    /// Why it is left out.
    pub reason: String,
}

impl RegistryStatus {
    /// Writes the metrics of a registry.
    ///
    /// # Errors
    /// When what the encoder writes to takes no more.
    pub fn encode(&self, encoder: &mut DescriptorEncoder<'_>) -> fmt::Result {
        let called: usize = self.services.iter().map(|service| service.called).sum();
        for (name, help, value) in [
            (
                "heddle_registry_connected",
                "Whether changes in the registry are heard.",
                usize::from(self.connected),
            ),
            (
                "heddle_registry_providers",
                "Providers in the registry that are right for themselves.",
                self.providers,
            ),
            (
                "heddle_registry_providers_called",
                "Providers in the registry that a Service calls.",
                called,
            ),
        ] {
            gauge(encoder, name, help, value)?;
        }
        let problems = self.reasons.iter().map(|reason| {
            let count = self.problems_by_reason.get(*reason);
            ([("reason", *reason)], count.copied().unwrap_or_default())
        });
        let help = "What in the registry is wrong, left out, or called by no Service, by reason.";
        gauges(encoder, "heddle_registry_problems", help, problems)
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
