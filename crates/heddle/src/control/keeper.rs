//! Periodic work of the control plane.

use std::sync::Arc;
use std::time::{Duration, Instant};

use heddle_authority::{Authority, Stage, UnixTime};
use heddle_control::Nodes;
use heddle_model::SpiffeId;
use heddle_model::calendar::utc;
use heddle_node::time::duration;
use heddle_telemetry::Seldom;
use heddle_transport::Clock;
use tokio::time::MissedTickBehavior;

use super::door::Door;

#[cfg(test)]
mod tests;

/// Time between two checks for work that is due.
const LOOK: Duration = Duration::from_millis(500);
/// Longest time between two warnings about the end of the signing certificate, in seconds. Between the first warning
/// and the expiry there are at least `SPEAK_TIMES` of them.
const SPEAK_EVERY_S: u64 = 86_400;
const SPEAK_TIMES: u64 = 4;

/// Renews the control plane's own certificate, continues rotations, and warns before the signing certificate expires.
pub(super) struct AuthorityKeeper {
    authority: Arc<Authority>,
    nodes: Nodes,
    door: Arc<Door>,
    clock: Arc<Clock>,
    said: Seldom<&'static str>,
    /// Time of the next warning about the signing certificate, in seconds since 1970.
    speak_at: u64,
}

impl AuthorityKeeper {
    pub(super) fn new(
        authority: Arc<Authority>,
        nodes: Nodes,
        door: Arc<Door>,
        clock: Arc<Clock>,
    ) -> AuthorityKeeper {
        AuthorityKeeper {
            authority,
            nodes,
            door,
            clock,
            said: Seldom::default(),
            speak_at: 0,
        }
    }

    /// Checks periodically, and whenever trust changes. Never ends.
    pub(super) async fn run(mut self) {
        let mut trust = self.authority.watch_trust();
        let mut look = tokio::time::interval(LOOK);
        look.set_missed_tick_behavior(MissedTickBehavior::Delay);
        loop {
            // `changed` does not fail: the authority owns the sender, and this struct holds the authority.
            tokio::select! {
                _ = look.tick() => {}
                _ = trust.changed() => {}
            }
            // On a blocking thread: it writes to the disk when something is due.
            let looked = tokio::task::spawn_blocking(move || {
                self.look();
                self
            });
            match looked.await {
                Ok(back) => self = back,
                Err(error) => {
                    tracing::error!(%error, "nothing is renewed any more: restart this process");
                    return;
                }
            }
        }
    }

    /// Does all work that is due.
    fn look(&mut self) {
        let now = self.clock.now();
        let at = UnixTime::since_unix_epoch(Duration::from_secs(now));
        let confirmed = |node: &_| self.nodes.confirmed(node).map(|confirmed| confirmed.bundle);
        match self.authority.advance_rotation(confirmed, at) {
            Ok(None) => {}
            Ok(Some(stage)) => self.advanced(stage),
            Err(error) => self.failed("rotation", &error.to_string()),
        }
        self.forget(at);
        if let Err(error) = self.door.refresh() {
            self.failed("renewal", &format!("{error:#}"));
        }
        let expires = self.authority.expires();
        let replace_from = self.authority.replace_from();
        if now >= replace_from && self.speak_at <= now {
            let every = (expires - replace_from.min(expires)) / SPEAK_TIMES;
            self.speak_at = now + every.clamp(1, SPEAK_EVERY_S);
            tracing::warn!("{}", self.end_of_signer(expires, now));
        }
    }

    /// Warning about the expiry of the signing certificate, with the remedy.
    fn end_of_signer(&self, expires: u64, now: u64) -> String {
        let (at, left) = (utc(expires), duration(expires.saturating_sub(now)));
        match self.authority.is_site() {
            true => format!(
                "this site's intermediate expires at {at}, in {left}: have it signed anew (`heddle site \
                 request` here, `heddle site sign` where the root is)"
            ),
            false => format!("the root expires at {at}, in {left}: `heddle root rotate`"),
        }
    }

    /// Forgets the addresses of nodes that are away, once they are denied or their certificate has expired. Until then
    /// other nodes keep the address: a broken line to the control plane does not cut a node off from the others.
    fn forget(&self, now: UnixTime) {
        let away = self.nodes.away();
        if away.is_empty() {
            return;
        }
        let members = self.authority.members(now);
        let denied = self.authority.trust().denied;
        for name in away {
            let is_member = members.iter().any(|member| member.node == name);
            let id = SpiffeId::node(self.authority.trust_domain().clone(), name.clone());
            if !is_member || denied.denies(&id, None, now).is_some() {
                tracing::info!(node = %name, "a node that is away is forgotten: it is denied, or has expired");
                self.nodes.forget(&name);
            }
        }
    }

    fn advanced(&self, stage: Stage) {
        match stage {
            Stage::Switched => tracing::info!(
                "every node trusts both roots: the new one signs from now on; join tokens that were \
                 made before are void"
            ),
            Stage::Steady => tracing::info!(
                "what the old root signed has expired: the new one is trusted alone; back the \
                 state folder up"
            ),
            Stage::Begun => {}
        }
    }

    fn failed(&mut self, what: &'static str, why: &str) {
        if self.said.may_name(what, Instant::now()) {
            tracing::error!("{what}: {why}");
        }
    }
}
