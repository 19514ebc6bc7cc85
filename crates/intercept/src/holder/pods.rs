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
mod enrolment;
mod place;
#[cfg(test)]
pub(super) mod tests;

/// How long a proxy may take to serve what waits in the listeners of a released pod.
const DRAINS_WITHIN: Duration = Duration::from_secs(5);
/// So many pods are named in a message; of more only the number is.
const NAMED: usize = 20;
/// How long the kernel may take to let go of a released pod's namespace.
const DETACHED_WITHIN: Duration = Duration::from_millis(100);
/// A pod's addresses are not read again sooner than after that, nor than after so many times what that took.
const READ_EVERY: Duration = Duration::from_millis(100);
const READ_SHARE: u32 = 10;

/// A pod.
pub(super) struct EnrolledPod {
    pub(super) id: PodId,
    pub(super) workload: WorkloadName,
    /// Where its namespace is found again; `None` for our own.
    path: Option<PathBuf>,
    pub(super) netns: File,
    place: Place,
    /// Whether the path led there when it was enrolled: the operator may see other paths than we.
    is_found: bool,
    pub(super) addresses: Vec<IpAddr>,
    /// Addresses that its namespace has and that are not its own: they are another pod's, or too many.
    pub(super) others: Vec<IpAddr>,
    /// How many there are besides, of which nothing else is known.
    pub(super) more: usize,
    /// Notices when its addresses change.
    watch: Watch,
    /// Before when they are not to be read again, and when they are.
    read: (Instant, Option<Instant>),
    pub(super) exclude: Exclude,
    pub(super) outbound: TcpListener,
    pub(super) inbound: TcpListener,
    pub(super) state: PodState,
    pub(super) fate: Fate,
    /// Whether its namespace has routes for sockets that speak with other addresses.
    routed: bool,
    /// Whether there are rules of the packet filter in its namespace.
    filtered: bool,
    /// When a released one is over.
    due: Option<Instant>,
    /// When the dials are to be looked at that began before it was enrolled.
    begun: Option<Instant>,
}

impl EnrolledPod {
    /// Whether that is its namespace.
    pub(super) fn is_in(&self, netns: &File) -> bool {
        place(netns).is_ok_and(|place| place == self.place)
    }

    /// What is said of it, when there is a proxy that answers or not, or none, which is waited for or not.
    fn status(&self, answers: Option<bool>, is_waiting: bool) -> PodStatus {
        PodStatus {
            pod: Some(self.id),
            workload: self.workload.clone(),
            netns: self.path.clone().unwrap_or_else(|| OWN_NAMESPACE.into()),
            addresses: self.addresses.clone(),
            state: match (self.state, answers) {
                (PodState::Held, None) if !is_waiting => PodState::Unserved,
                (PodState::Held | PodState::Serving, Some(false)) => PodState::Unresponsive,
                (state, _) => state,
            },
            fate: self.fate,
            reason: None,
        }
    }

    /// Whether the proxy may speak to it with that address, which is another host's or no host's.
    fn may_speak(&self, family: Family, source: SocketAddr) -> io::Result<()> {
        let is_right =
            may_speak_as(source, family, &self.addresses) && !self.others.contains(&source.ip());
        // Of a pod with more addresses than are kept, the kernel knows the rest.
        if is_right
            && (self.more == 0 || !sockets::is_of_namespace(self.netns.as_fd(), source.ip())?)
        {
            return Ok(());
        }
        tracing::debug!(workload = %self.workload, %source, "the proxy is not to speak with this address");
        Err(Errno::ACCESS.into())
    }

    /// What is needed to enrol it again; none for one that is released, or that is ours anyway.
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

/// All of them, and the hooks that they share.
pub(super) struct Pods {
    hooks: Hooks,
    watches: Watches,
    pods: BTreeMap<PodId, EnrolledPod>,
    next: u32,
    /// The namespaces that are no pod's: ours, and the machine's.
    not_pods: Vec<Place>,
    /// Which addresses are the mesh's.
    ranges: Vec<Range>,
    /// Until when what pods dial waits for the next proxy: no pod meets its fate before. Stays for a moment when there
    /// is one.
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

    /// The pod of a workload that is not being released.
    pub(super) fn of(&self, workload: &WorkloadName) -> Option<&EnrolledPod> {
        self.all()
            .find(|pod| pod.workload == *workload && pod.state != PodState::Releasing)
    }

    /// What is said of a workload that is not enrolled: a name is mistyped more often than forgotten.
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

    /// What is said of them, when there is a proxy that answers or not, or none.
    pub(super) fn statuses(&self, answers: Option<bool>) -> impl Iterator<Item = PodStatus> {
        let is_waiting = self.waits_until.is_some();
        self.all().map(move |pod| pod.status(answers, is_waiting))
    }

    /// A socket for reaching a pod's own programs. With a `source` it speaks with that address.
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
                    tracing::error!(workload = %pod.workload, %error, "no proxy can speak to a pod as its clients");
                })?;
                pod.routed = true;
            }
        }
        sockets::open(pod.netns.as_fd(), family, source)
    }

    /// The proxy serves a pod, or (`Held`) refuses what it dials, and says what becomes of it without one.
    /// Returns whether that is news worth remembering.
    pub(super) fn settle(&mut self, id: PodId, state: PodState, fate: Fate) -> bool {
        let Some(pod) = self.pods.get_mut(&id) else {
            return false;
        };
        if pod.state == PodState::Releasing {
            return false;
        }
        let is_news = pod.fate != fate;
        let may_have_passed = pod.path.is_some() && self.waits_until.is_none();
        if pod.state == PodState::Held && state == PodState::Serving && may_have_passed {
            // What was dialled while no proxy served it may have passed the hooks.
            pod.begun = Some(Instant::now() + ANSWERED_WITHIN);
        }
        pod.state = state;
        pod.fate = fate;
        said(self.hooks.serve(id, fate));
        is_news
    }

    /// Whose namespaces are not where they were any more.
    pub(super) fn vanished(&self) -> Vec<WorkloadName> {
        let is_gone = |pod: &&EnrolledPod| {
            let is_watched = pod.is_found && pod.state != PodState::Releasing;
            let path = pod.path.as_ref().filter(|_| is_watched);
            path.is_some_and(|path| !leads_to(path, pod.place))
        };
        let gone = self.all().filter(is_gone);
        gone.map(|pod| pod.workload.clone()).collect()
    }

    /// There is no proxy any more, and another is about to be there. For the kernel nothing changes: it steers what pods
    /// dial, and what arrives for them, to their listeners, where that waits.
    pub(super) fn wait_until(&mut self, until: Instant) {
        self.waits_until = Some(until);
        self.proxy_died();
    }

    pub(super) fn waits_until(&self) -> Option<Instant> {
        self.waits_until
    }

    /// There is a proxy again.
    pub(super) fn wait_no_longer(&mut self) {
        self.waits_until = None;
    }

    /// There is no proxy any more, nor is one waited for. One store in the kernel, for all pods. What has waited is
    /// turned away: its program can only try again when it hears of that.
    pub(super) fn meet_fates(&mut self) {
        said(self.hooks.died());
        if self.waits_until.take().is_some() {
            for pod in self.pods.values() {
                sockets::turn_away(&pod.outbound);
                sockets::turn_away(&pod.inbound);
            }
        }
        self.proxy_died();
    }

    fn proxy_died(&mut self) {
        for pod in self.pods.values_mut() {
            match pod.state {
                PodState::Serving => pod.state = PodState::Held,
                // No proxy is left that could drain it.
                PodState::Releasing => pod.due = Some(Instant::now() + DETACHED_WITHIN),
                // The others are only said of it.
                _ => {}
            }
        }
    }

    /// Nothing new of that workload is steered from now on.
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

    /// The proxy has closed its listeners, or there is none.
    pub(super) fn drained(&mut self, pod: PodId) {
        if let Some(pod) = self.pods.get_mut(&pod)
            && pod.state == PodState::Releasing
        {
            pod.due = Some(Instant::now() + DETACHED_WITHIN);
        }
    }

    /// When the next released pod is over, a pod's addresses or dials are to be looked at, or nothing waits longer.
    pub(super) fn due(&self) -> Option<Instant> {
        let due = self.all().flat_map(|pod| [pod.due, pod.read.1, pod.begun]);
        due.chain([self.waits_until]).flatten().min()
    }

    /// The released pods that are over.
    pub(super) fn overdue(&self, now: Instant) -> Vec<PodId> {
        let is_over = |pod: &&EnrolledPod| pod.due.is_some_and(|due| due <= now);
        self.all().filter(is_over).map(|pod| pod.id).collect()
    }

    /// Closes what there is of a released pod, and takes its routes away unless a pod needs them that is in
    /// its namespace now.
    pub(super) fn forget(&mut self, id: PodId) {
        let Some(pod) = self.pods.remove(&id) else {
            return;
        };
        said(self.hooks.forget(id));
        if self.all().all(|other| other.place != pod.place)
            && let Err(error) = routes::undo(pod.netns.as_fd())
        {
            tracing::debug!(workload = %pod.workload, %error, "the routes of a released pod stay");
        }
    }
}

/// What the kernel refuses here is a fault of ours, which the operator should hear of.
fn said(done: Result<(), HookError>) {
    if let Err(error) = done {
        tracing::error!("{error}");
    }
}
