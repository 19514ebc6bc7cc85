//! The enrolled pods.

use std::collections::BTreeMap;
use std::fs::File;
use std::io;
use std::net::{IpAddr, SocketAddr, TcpListener};
use std::os::fd::{AsFd, OwnedFd};
use std::path::PathBuf;
use std::time::{Duration, Instant};

use heddle_model::WorkloadName;
use rustix::io::Errno;

use super::memory::Remembered;
use super::sockets::{self, Found};
use super::watch::{Watch, Watches};
use crate::hooks::{HookError, Hooks, Range};
use crate::request::{PodState, PodStatus};
use crate::source::may_speak_as;
use crate::{Exclude, Family, Fate, PodId, routes};

use begun::ANSWERED_WITHIN;
pub(super) use place::{OWN_NAMESPACE, is_namespace, place};
use place::{Place, leads_to};

mod addresses;
mod begun;
mod enrollment;
mod place;
#[cfg(test)]
pub(super) mod tests;

/// Time for the proxy to drain the listeners of a released pod.
const DRAINS_WITHIN: Duration = Duration::from_secs(5);
/// Limit of pods listed in a message; of further ones only the number is given.
const NAMED: usize = 20;
/// Time for the kernel to detach the programs from a released pod's namespace.
const DETACHED_WITHIN: Duration = Duration::from_millis(100);
/// Minimum time between two reads of a pod's addresses. It is also at least `READ_SHARE` times what the last read
/// took.
const READ_EVERY: Duration = Duration::from_millis(100);
const READ_SHARE: u32 = 10;

pub(super) struct EnrolledPod {
    pub(super) id: PodId,
    pub(super) workload: WorkloadName,
    /// Path at which its namespace is found again; `None` for our own.
    path: Option<PathBuf>,
    pub(super) netns: File,
    place: Place,
    /// Whether the path led to the namespace at enrollment. The operator may see another file tree than we do.
    is_found: bool,
    pub(super) addresses: Vec<IpAddr>,
    /// Addresses in its namespace that do not count as its own: they belong to another pod, or are beyond the limit.
    pub(super) others: Vec<IpAddr>,
    /// Number of further addresses, which are not recorded.
    pub(super) more: usize,
    /// Notices when its addresses change.
    watch: Watch,
    /// The earliest time to read its addresses again, and the time at which to read them, if they changed.
    read: (Instant, Option<Instant>),
    pub(super) exclude: Exclude,
    pub(super) outbound: TcpListener,
    pub(super) inbound: TcpListener,
    pub(super) state: PodState,
    pub(super) fate: Fate,
    /// Whether its namespace has the routes for sockets with a client's source address.
    routed: bool,
    /// Whether its namespace has packet filter rules.
    filtered: bool,
    /// When a released pod is removed.
    due: Option<Instant>,
    /// When to check connection attempts that began before it was enrolled or served.
    begun: Option<Instant>,
    /// Whether its fate applies in the kernel, so that connections may pass the hooks: from the end of the proxy until
    /// another one serves or holds it.
    meets_fate: bool,
}

impl EnrolledPod {
    /// Whether `netns` is its namespace.
    pub(super) fn is_in(&self, netns: &File) -> bool {
        place(netns).is_ok_and(|place| place == self.place)
    }

    /// Its status. `answers`: whether the proxy answers, `None` without a proxy. `is_waiting`: whether a new proxy is
    /// expected soon.
    fn status(&self, answers: Option<bool>, is_waiting: bool) -> PodStatus {
        PodStatus {
            pod: Some(self.id),
            workload: self.workload.clone(),
            netns: self.path.clone().unwrap_or_else(|| OWN_NAMESPACE.into()),
            addresses: self.addresses.clone(),
            state: match (self.state, answers) {
                (PodState::Held, None) if !is_waiting || self.meets_fate => PodState::Unserved,
                (PodState::Held | PodState::Serving, Some(false)) => PodState::Unresponsive,
                (state, _) => state,
            },
            fate: self.fate,
            reason: None,
        }
    }

    /// Checks that the proxy may use `source` towards this pod: an address of another host, or of no host.
    fn may_speak(&self, family: Family, source: SocketAddr) -> io::Result<()> {
        let is_right =
            may_speak_as(source, family, &self.addresses) && !self.others.contains(&source.ip());
        // When not all addresses of the namespace are recorded, ask the kernel.
        if is_right
            && (self.more == 0 || !sockets::is_of_namespace(self.netns.as_fd(), source.ip())?)
        {
            return Ok(());
        }
        tracing::debug!(workload = %self.workload, %source, "the proxy may not use this source address");
        Err(Errno::ACCESS.into())
    }

    /// The data with which a restarted holder enrolls it again. `None` for a released pod, and for the holder's own
    /// pod.
    pub(super) fn remembered(&self) -> Option<Remembered> {
        let path = self.path.clone()?;
        (self.state != PodState::Releasing).then(|| Remembered {
            workload: self.workload.clone(),
            netns: path,
            inode: Some(self.place.1),
            fate: self.fate,
            exclude: self.exclude.clone(),
            filtered: Some(self.filtered),
        })
    }
}

/// All enrolled pods, and their common hooks.
pub(super) struct Pods {
    hooks: Hooks,
    watches: Watches,
    pods: BTreeMap<PodId, EnrolledPod>,
    next: u32,
    /// Namespaces that cannot be enrolled: our own, and the machine's.
    not_pods: Vec<Place>,
    /// The address ranges of the mesh.
    ranges: Vec<Range>,
    /// Deadline until which connections wait for the next proxy, before the fates of pods apply. It stays set until
    /// the new proxy has served a pod.
    waits_until: Option<Instant>,
}

impl Pods {
    pub(super) fn new(hooks: Hooks, host: Option<&File>, ranges: Vec<Range>) -> io::Result<Pods> {
        let mut not_pods = vec![place(&File::open(OWN_NAMESPACE)?)?];
        if let Some(host) = host {
            not_pods.push(place(host)?);
        }
        Ok(Pods {
            hooks,
            watches: Watches::new()?,
            pods: BTreeMap::new(),
            next: 1,
            not_pods,
            ranges,
            waits_until: None,
        })
    }

    pub(super) fn get(&self, pod: PodId) -> Option<&EnrolledPod> {
        self.pods.get(&pod)
    }

    pub(super) fn hooks(&self) -> &Hooks {
        &self.hooks
    }

    /// The enrolled pod of a workload, without those being released.
    pub(super) fn of(&self, workload: &WorkloadName) -> Option<&EnrolledPod> {
        self.all()
            .find(|pod| pod.workload == *workload && pod.state != PodState::Releasing)
    }

    /// Error message for a workload that is not enrolled. It lists those that are, since the name may be mistyped.
    pub(super) fn unknown(&self, workload: &WorkloadName) -> String {
        let is_here = |pod: &&EnrolledPod| pod.state != PodState::Releasing;
        let all: Vec<&WorkloadName> = self
            .all()
            .filter(is_here)
            .map(|pod| &pod.workload)
            .collect();
        let named: Vec<String> = all.iter().take(NAMED).map(ToString::to_string).collect();
        match (named.join(", "), all.len() - named.len()) {
            (_, _) if named.is_empty() => {
                format!("{workload} is not enrolled here, and no other pod is")
            }
            (named, 0) => format!("{workload} is not enrolled here: these are: {named}"),
            (named, more) => {
                format!(
                    "{workload} is not enrolled here: these are: {named}, and {more} more (heddle pods)"
                )
            }
        }
    }

    pub(super) fn all(&self) -> impl Iterator<Item = &EnrolledPod> {
        self.pods.values()
    }

    /// The status of all pods. `answers`: whether the proxy answers, `None` without a proxy.
    pub(super) fn statuses(&self, answers: Option<bool>) -> impl Iterator<Item = PodStatus> {
        let is_waiting = self.waits_until.is_some();
        self.all().map(move |pod| pod.status(answers, is_waiting))
    }

    /// Makes a socket for connections to a pod's own programs, bound to `source` if given.
    pub(super) fn open(
        &mut self,
        id: PodId,
        family: Family,
        source: Option<SocketAddr>,
    ) -> io::Result<OwnedFd> {
        let pod = self.pods.get_mut(&id).ok_or(io::ErrorKind::NotFound)?;
        if let Some(source) = source {
            pod.may_speak(family, source)?;
            if !pod.routed {
                let routed = routes::prepare(pod.netns.as_fd());
                routed.inspect_err(|error| {
                    tracing::error!(workload = %pod.workload, %error, "cannot use clients' addresses in a pod");
                })?;
                pod.routed = true;
            }
        }
        sockets::open(pod.netns.as_fd(), family, source)
    }

    /// Records that the proxy serves a pod, or (`Held`) refuses its outbound connections, and the pod's fate.
    /// Returns whether the fate has changed, so that it must be stored.
    pub(super) fn settle(&mut self, id: PodId, state: PodState, fate: Fate) -> bool {
        let Some(pod) = self.pods.get_mut(&id) else {
            return false;
        };
        if pod.state == PodState::Releasing {
            return false;
        }
        let is_news = pod.fate != fate;
        let met_its_fate = std::mem::take(&mut pod.meets_fate);
        let is_new =
            pod.state == PodState::Held && state == PodState::Serving && self.waits_until.is_none();
        if pod.path.is_some() && (met_its_fate || is_new) {
            // While the fate applied, connection attempts may have passed the hooks.
            pod.begun = Some(Instant::now() + ANSWERED_WITHIN);
        }
        pod.state = state;
        pod.fate = fate;
        said(self.hooks.serve(id, fate));
        is_news
    }

    /// Workloads whose namespaces are no longer at their paths.
    pub(super) fn vanished(&self) -> Vec<WorkloadName> {
        let is_gone = |pod: &&EnrolledPod| {
            let is_watched = pod.is_found && pod.state != PodState::Releasing;
            let path = pod.path.as_ref().filter(|_| is_watched);
            path.is_some_and(|path| !leads_to(path, pod.place))
        };
        let gone = self.all().filter(is_gone);
        gone.map(|pod| pod.workload.clone()).collect()
    }

    /// The proxy is gone, and the next one is about to start. In the kernel nothing changes: connections are still
    /// steered to the listeners, and wait in their backlog.
    pub(super) fn wait_until(&mut self, until: Instant) {
        self.waits_until = Some(until);
        self.proxy_died();
    }

    pub(super) fn waits_until(&self) -> Option<Instant> {
        self.waits_until
    }

    /// A proxy serves pods again.
    pub(super) fn wait_no_longer(&mut self) {
        self.waits_until = None;
    }

    /// The proxy is gone, and none is expected soon: the fates of pods apply, by one store in the kernel for all of
    /// them. Connections that waited in the backlog are reset, so that the programs can try again.
    pub(super) fn meet_fates(&mut self) {
        said(self.hooks.died());
        if self.waits_until.take().is_some() {
            for pod in self.pods.values() {
                sockets::turn_away(&pod.outbound);
                sockets::turn_away(&pod.inbound);
            }
        }
        for pod in self.pods.values_mut() {
            pod.meets_fate = true;
        }
        self.proxy_died();
    }

    fn proxy_died(&mut self) {
        for pod in self.pods.values_mut() {
            match pod.state {
                PodState::Serving => pod.state = PodState::Held,
                // No proxy is left to drain its listeners.
                PodState::Releasing => pod.due = Some(Instant::now() + DETACHED_WITHIN),
                // The other states are never stored here, only reported.
                _ => {}
            }
        }
    }

    /// Stops steering new connections of a workload's pod, and lets the proxy drain its listeners.
    pub(super) fn release(&mut self, workload: &WorkloadName) -> Option<PodId> {
        let id = self.of(workload)?.id;
        said(self.hooks.release(id));
        let pod = self.pods.get_mut(&id)?;
        pod.state = PodState::Releasing;
        pod.due = Some(Instant::now() + DRAINS_WITHIN);
        pod.read.1 = None;
        pod.begun = None;
        self.offer();
        Some(id)
    }

    /// The proxy has closed the listeners of a released pod, or there is no proxy.
    pub(super) fn drained(&mut self, pod: PodId) {
        if let Some(pod) = self.pods.get_mut(&pod)
            && pod.state == PodState::Releasing
        {
            pod.due = Some(Instant::now() + DETACHED_WITHIN);
        }
    }

    /// The next deadline: to remove a released pod, read addresses, check connection attempts, or stop waiting for a
    /// proxy.
    pub(super) fn due(&self) -> Option<Instant> {
        let due = self.all().flat_map(|pod| [pod.due, pod.read.1, pod.begun]);
        due.chain([self.waits_until]).flatten().min()
    }

    /// Released pods that are to be removed now.
    pub(super) fn overdue(&self, now: Instant) -> Vec<PodId> {
        let is_over = |pod: &&EnrolledPod| pod.due.is_some_and(|due| due <= now);
        self.all().filter(is_over).map(|pod| pod.id).collect()
    }

    /// Drops a released pod, and removes its routes unless another pod is enrolled in its namespace by now.
    pub(super) fn forget(&mut self, id: PodId) {
        let Some(pod) = self.pods.remove(&id) else {
            return;
        };
        said(self.hooks.forget(id));
        if self.all().all(|other| other.place != pod.place)
            && let Err(error) = routes::undo(pod.netns.as_fd())
        {
            tracing::debug!(workload = %pod.workload, %error, "cannot remove the routes of a released pod");
        }
    }
}

/// Logs a refusal of the kernel, which here means a bug of ours.
fn said(done: Result<(), HookError>) {
    if let Err(error) = done {
        tracing::error!("{error}");
    }
}
