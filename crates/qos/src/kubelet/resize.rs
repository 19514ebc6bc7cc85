//! In-place resizes of pods (KEP-1287). The kernel refuses a weight for an idle group, so a kubelet could not resize an
//! offline pod: the agent lets go of a pod while it is resized.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use super::answer::json::{Amounts, Container, ContainerStatus, Resources, Spec, Status};
use super::group::Uid;
use super::quantity::is_same;

#[cfg(test)]
mod tests;

/// How long a pod is let go of for a resize. A kubelet tries again 10 to 15 seconds after a failure.
pub const PATIENCE: Duration = Duration::from_secs(60);
/// After that it yields for as long as this, before it is let go of again.
pub(super) const RESPITE: Duration = Duration::from_secs(600);

/// Whether the kubelet is about to change the resources of a pod, or does so now. One that it cannot grant, or not yet
/// (`Infeasible`, `Deferred`), may wait for days: the pod goes on as it is.
pub(super) fn is_resizing(spec: &Spec, status: &Status) -> bool {
    let waits = |reason: &str| matches!(reason, "Infeasible" | "Deferred");
    let condition = |name: &str| {
        let mut all = status.conditions.0.iter();
        all.find(|one| one.name == name && one.status == "True")
    };
    if condition("PodResizeInProgress").is_some() {
        return true;
    }
    if let Some(pending) = condition("PodResizePending") {
        return !waits(&pending.reason);
    }
    match status.resize.as_str() {
        "" => {
            let containers = differ(&spec.containers.0, &status.container_statuses.0);
            containers || differ(&spec.init_containers.0, &status.init_container_statuses.0)
        }
        reason => !waits(reason),
    }
}

/// Whether a running container has other resources than it shall have. Those of the pod as a whole say nothing: a
/// kubelet reads them from the pod's group, where an idle one has 3 shares.
fn differ(wanted: &[Container], there: &[ContainerStatus]) -> bool {
    there.iter().any(|status| {
        let container = wanted.iter().find(|one| one.name == status.name);
        let wanted = container.and_then(|container| container.resources.as_ref());
        match (wanted, &status.resources, &status.state.running) {
            (Some(wanted), Some(there), Some(_)) => !are_same(wanted, there),
            _ => false,
        }
    })
}

fn are_same(wanted: &Resources, there: &Resources) -> bool {
    let same = |a: &Option<String>, b: &Option<String>| match (a, b) {
        (Some(a), Some(b)) => is_same(a, b),
        // A default of the API server or of the runtime, not a wish.
        (None, _) => true,
        (Some(_), None) => false,
    };
    let all = |a: &Amounts, b: &Amounts| same(&a.cpu, &b.cpu) && same(&a.memory, &b.memory);
    all(&wanted.requests, &there.requests) && all(&wanted.limits, &there.limits)
}

/// Resizes that go on. One that never ends, such as to less memory than is used, does not free a pod for ever: of every
/// eleven minutes it is let go of for one.
#[derive(Debug, Default)]
pub(super) struct Resizes {
    began: BTreeMap<Uid, Duration>,
}

impl Resizes {
    /// The pods that are resized now, from all that a kubelet lists.
    pub(super) fn follow<'p>(&mut self, now: Duration, resizing: impl Iterator<Item = &'p Uid>) {
        let resizing: BTreeSet<&Uid> = resizing.collect();
        self.began.retain(|uid, _| resizing.contains(uid));
        for uid in resizing {
            if !self.began.contains_key(uid) {
                self.began.insert(uid.clone(), now);
            }
        }
    }

    /// Whether a pod is let go of.
    pub(super) fn is_let_go(&self, uid: &Uid, now: Duration) -> bool {
        self.began.get(uid).is_some_and(|began| is_in(*began, now))
    }

    /// Whether any pod is.
    pub(super) fn is_any_let_go(&self, now: Duration) -> bool {
        self.began.values().any(|began| is_in(*began, now))
    }
}

fn is_in(began: Duration, now: Duration) -> bool {
    let round = (PATIENCE + RESPITE).as_millis();
    now.saturating_sub(began).as_millis() % round < PATIENCE.as_millis()
}
