//! Follows a registry for `heddle up` and `heddle control`.

use std::sync::Arc;
use std::time::Duration;

use anyhow::anyhow;
use heddle_compile::registered::Providers;
use heddle_model::report::{Cause, Tally};
use heddle_node::exit::{Exit, Failure};
use heddle_node::settings::Settings;
use heddle_node::status::{LeftOutStatus, ProvidingStatus, RegistryStatus};
use heddle_registry::{Follower, Seen};
use tokio::sync::watch;

use crate::settings;

/// How long etcd may give no part of the registry's first state, and how long that may take altogether. Then the folder is
/// served without providers.
const SILENCE: Duration = Duration::from_secs(3);
const FIRST_WAIT: Duration = Duration::from_secs(60);

/// Most left-out providers that the status names.
const MAX_LEFT_OUT: usize = 100;

/// A registry that is followed.
pub(crate) struct Followed {
    follower: Follower,
    seen: watch::Receiver<Seen>,
    prefix: String,
}

impl Followed {
    /// Follows the registry, if one is configured. Waits for its first state, so that a restart does not serve without
    /// providers; when etcd does not answer, the folder is served all the same.
    ///
    /// # Errors
    /// When the settings were not checked, or a thread cannot be started.
    pub(crate) async fn start(settings: &Settings) -> Result<Option<Followed>, Failure> {
        let refused = |why: String| Failure::new(Exit::Refused, anyhow!("the registry: {why}"));
        let Some((access, layout)) = settings::registry(&settings.registry).map_err(refused)?
        else {
            return Ok(None);
        };
        let prefix = layout.prefix().to_owned();
        let mut follower =
            Follower::start(access, layout).map_err(|error| refused(error.to_string()))?;
        if !follower.first(SILENCE, FIRST_WAIT).await {
            tracing::warn!("the registry is not known yet: the folder is served without it");
        }
        Ok(Some(Followed {
            seen: follower.seen(),
            prefix,
            follower,
        }))
    }

    /// The registered providers, updated as they change.
    pub(crate) fn providers(&self) -> watch::Receiver<Arc<Providers>> {
        self.follower.providers()
    }

    /// Status of the connection, and `tally`, the counts of the last compilation.
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
            reasons: Cause::ALL.map(Cause::code).to_vec(),
        }
    }
}
