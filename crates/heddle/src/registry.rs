//! The registry as `heddle up` and `heddle control` follow it.

use std::sync::Arc;
use std::time::Duration;

use anyhow::anyhow;
use heddle_control::registry::{Follower, Providers, Seen};
use tokio::sync::watch;

use crate::exit::{Exit, Failure};
use crate::settings::{Registry, Settings};
use crate::status::RegistryStatus;

/// How long the first state is waited for before the folder is served without.
const FIRST_WAIT: Duration = Duration::from_secs(3);

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
        let Registry { prefix, .. } = &settings.registry;
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

    /// How it is reached.
    pub(crate) fn status(&self) -> RegistryStatus {
        let seen = self.seen.borrow();
        RegistryStatus {
            endpoint: seen.endpoint.clone(),
            prefix: self.prefix.clone(),
            connected: seen.connected,
            for_s: seen.since.elapsed().as_secs(),
            problem: seen.problem.clone(),
            revision: seen.revision,
            providers: seen.providers,
        }
    }
}
