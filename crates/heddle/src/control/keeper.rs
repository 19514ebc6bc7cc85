//! What the control plane does by itself as time goes on.

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

/// How often it is looked whether something is due.
const LOOK: Duration = Duration::from_millis(500);
/// How often what comes to its end is spoken of, in seconds, and how often at least until then.
const SPEAK_EVERY_S: u64 = 86_400;
const SPEAK_TIMES: u64 = 4;

/// Renews the own certificate, goes on with rotations, and speaks of what comes to its end.
pub(super) struct AuthorityKeeper {
    authority: Arc<Authority>,
    nodes: Nodes,
    door: Arc<Door>,
    clock: Arc<Clock>,
    said: Seldom<&'static str>,
    /// When the end of the root is spoken of next, in seconds since 1970.
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

    /// Looks again and again, and whenever trust changes. It never ends.
    pub(super) async fn run(mut self) {
        let mut trust = self.authority.watch_trust();
        let mut look = tokio::time::interval(LOOK);
        look.set_missed_tick_behavior(MissedTickBehavior::Delay);
        loop {
            // The sender is the authority's own, which we hold.
            tokio::select! {
                _ = look.tick() => {}
                _ = trust.changed() => {}
            }
            // It writes to the disk when something is due.
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

    /// Does what is due.
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

    /// What is said of what signs, before it expires.
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

    /// A node that is away stays where it was for the others, until it is denied or its certificate has
    /// expired: a line that is cut between it and us is no reason to cut it off from them.
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
                tracing::info!(node = %name, "a node is away, and is not believed any more");
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
