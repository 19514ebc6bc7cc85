//! The registry as `heddle up` and `heddle control` follow it.

use std::sync::Arc;
use std::time::Duration;

use anyhow::anyhow;
use heddle_compile::registered::Providers;
use heddle_model::report::{Cause, Tally};
use heddle_registry::{Follower, Seen};
use heddle_telemetry::text::{Encoder, Kind};
use tokio::sync::watch;

use crate::exit::{Exit, Failure};
use crate::settings::{RegistrySettings, Settings};
use crate::status::{LeftOutStatus, ProvidingStatus, RegistryStatus};

/// How long the first state is waited for before the folder is served without.
const FIRST_WAIT: Duration = Duration::from_secs(3);

/// Providers that are left out and named in the status.
const MAX_LEFT_OUT: usize = 100;

/// A registry that is followed.
pub(crate) struct Followed {
    follower: Follower,
    seen: watch::Receiver<Seen>,
    prefix: String,
}

impl Followed {
    /// Follows the registry, if there is to be one. Its first state is waited for, so that a start of ours is no
    /// time without providers; when etcd does not answer, the folder is served all the same.
    ///
    /// # Errors
    /// When what is said of it contradicts itself.
    pub(crate) async fn start(settings: &Settings) -> Result<Option<Followed>, Failure> {
        let RegistrySettings { prefix, .. } = &settings.registry;
        let refused = |why: String| Failure::new(Exit::Refused, anyhow!("the registry: {why}"));
        let Some(access) = settings.registry.access().map_err(refused)? else {
            return Ok(None);
        };
        let mut follower = Follower::start(access, prefix.0.clone())
            .map_err(|error| refused(error.to_string()))?;
        if !follower.first(FIRST_WAIT).await {
            tracing::warn!("the registry is not known yet: the folder is served without it");
        }
        Ok(Some(Followed {
            seen: follower.seen(),
            prefix: prefix.0.prefix().to_owned(),
            follower,
        }))
    }

    /// Who is registered, as it changes.
    pub(crate) fn providers(&self) -> watch::Receiver<Arc<Providers>> {
        self.follower.providers()
    }

    /// How it is reached, and what what is in it came to.
    pub(crate) fn status(&self, tally: &Tally) -> RegistryStatus {
        let seen = self.seen.borrow();
        let by_reason = tally.problems.iter();
        let services = tally.services.iter();
        let left_out = tally.left_out.iter().take(MAX_LEFT_OUT);
        RegistryStatus {
            endpoint: seen.endpoint.clone(),
            prefix: self.prefix.clone(),
            connected: seen.connected,
            for_s: seen.since.elapsed().as_secs(),
            problem: seen.problem.clone(),
            revision: seen.revision,
            providers: seen.providers,
            problems_by_reason: by_reason
                .map(|(cause, count)| (cause.code().to_owned(), *count))
                .collect(),
            services: services
                .map(|(service, providing)| ProvidingStatus {
                    service: service.to_string(),
                    called: providing.called,
                    registered: providing.registered,
                })
                .collect(),
            left_out: left_out
                .map(|(workload, reason)| LeftOutStatus {
                    workload: workload.to_string(),
                    reason: reason.clone(),
                })
                .collect(),
        }
    }
}

/// Appends the metrics of a registry to the exposition, of `heddle up` and of a control plane alike.
pub(crate) fn render(encoder: &mut Encoder<'_>, status: &RegistryStatus) {
    let called = status.services.iter().map(|service| service.called).sum();
    for (name, help, value) in [
        (
            "heddle_registry_connected",
            "Whether changes in the registry are heard.",
            usize::from(status.connected),
        ),
        (
            "heddle_registry_providers",
            "Providers in the registry that are right for themselves.",
            status.providers,
        ),
        (
            "heddle_registry_providers_called",
            "Providers in the registry that a Service calls.",
            called,
        ),
    ] {
        encoder.family(name, Kind::Gauge, help);
        encoder.count(name, &[], value as u64);
    }
    let name = "heddle_registry_problems";
    let help = "What in the registry is wrong, left out, or called by no Service, by reason.";
    encoder.family(name, Kind::Gauge, help);
    for reason in Cause::ALL.map(Cause::code) {
        let count = status.problems_by_reason.get(reason);
        let count = count.copied().unwrap_or_default();
        encoder.count(name, &[("reason", reason)], count as u64);
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

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
            ..RegistryStatus::default()
        };
        let mut text = String::new();
        render(&mut Encoder::new(&mut text), &status);
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
        assert_eq!(reasons, Cause::ALL.len());
    }
}
