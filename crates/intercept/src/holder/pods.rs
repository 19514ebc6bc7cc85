//! The enrolled pods.

use std::collections::BTreeMap;
use std::fs::File;
use std::io;
use std::net::{IpAddr, SocketAddr, TcpListener};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use heddle_model::WorkloadName;
use rustix::fs::{fstat, fstatfs, stat};
use rustix::io::Errno;

use super::memory::Remembered;
use super::sockets::{self, Found};
use super::watch::{Watch, Watches};
use crate::hooks::{self, HookError, Hooks};
use crate::request::{PodState, PodStatus};
use crate::{Exclude, Family, Fate, PodId, routes};

use addresses::{Divided, not_before};

mod addresses;
#[cfg(test)]
pub(super) mod tests;

/// The most pods of a node.
const MAX_PODS: usize = 4_096;
/// How long a proxy may take to serve what waits in the listeners of a released pod.
const DRAINS_WITHIN: Duration = Duration::from_secs(5);
/// So many pods are named in a message; of more only the number is.
const NAMED: usize = 20;
/// How long the kernel may take to let go of a released pod's namespace.
const DETACHED_WITHIN: Duration = Duration::from_millis(100);
/// A pod's addresses are not read again sooner than after that, nor than after so many times what that took.
const READ_EVERY: Duration = Duration::from_millis(100);
const READ_SHARE: u32 = 10;
/// The file system of namespaces (`linux/magic.h`).
const NSFS_MAGIC: rustix::fs::FsWord = 0x6e73_6673;
/// Where our own namespace is.
pub(super) const OWN_NAMESPACE: &str = "/proc/self/ns/net";

/// Device and inode: a namespace is the same when they are.
type Place = (u64, u64);

/// A pod.
pub(super) struct Pod {
    pub(super) id: PodId,
    pub(super) workload: WorkloadName,
    /// Where its namespace is found again; `None` for our own.
    path: Option<PathBuf>,
    pub(super) netns: File,
    place: Place,
    /// Whether the path led there when it was enrolled: whoever asked may see other paths than we.
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
}

impl Pod {
    /// Whether that is its namespace.
    pub(super) fn is_in(&self, netns: &File) -> bool {
        place(netns).is_ok_and(|place| place == self.place)
    }

    /// What is said of it, when there is a proxy that answers or not, or none.
    pub(super) fn status(&self, answers: Option<bool>) -> PodStatus {
        PodStatus {
            pod: Some(self.id),
            workload: self.workload.clone(),
            netns: self.path.clone().unwrap_or_else(|| OWN_NAMESPACE.into()),
            addresses: self.addresses.clone(),
            state: match (self.state, answers) {
                (PodState::Held, None) => PodState::Unserved,
                (PodState::Held | PodState::Serving, Some(false)) => PodState::Unresponsive,
                (state, _) => state,
            },
            fate: self.fate,
            reason: None,
        }
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
    pods: BTreeMap<PodId, Pod>,
    next: u32,
    /// The namespaces that are nobody's pod: ours, and the machine's.
    nobodys: Vec<Place>,
}

impl Pods {
    pub(super) fn new(hooks: Hooks, host: Option<&File>) -> io::Result<Pods> {
        let mut nobodys = vec![place(&File::open(OWN_NAMESPACE)?)?];
        if let Some(host) = host {
            nobodys.push(place(host)?);
        }
        Ok(Pods {
            hooks,
            watches: Watches::new()?,
            pods: BTreeMap::new(),
            next: 1,
            nobodys,
        })
    }

    pub(super) fn get(&self, pod: PodId) -> Option<&Pod> {
        self.pods.get(&pod)
    }

    pub(super) fn hooks(&self) -> &Hooks {
        &self.hooks
    }

    /// The pod of a workload that is not being released.
    pub(super) fn of(&self, workload: &WorkloadName) -> Option<&Pod> {
        self.all()
            .find(|pod| pod.workload == *workload && pod.state != PodState::Releasing)
    }

    /// What is said of a workload that is not enrolled: a name is mistyped more often than forgotten.
    pub(super) fn unknown(&self, workload: &WorkloadName) -> String {
        let is_here = |pod: &&Pod| pod.state != PodState::Releasing;
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

    pub(super) fn all(&self) -> impl Iterator<Item = &Pod> {
        self.pods.values()
    }

    /// Whether a namespace may be the pod of a workload.
    pub(super) fn check(
        &self,
        workload: &WorkloadName,
        path: &Path,
        netns: &File,
    ) -> Result<(), String> {
        let path = path.display();
        if !is_namespace(netns) {
            return Err(format!(
                "{path} is no network namespace: name one such as /run/netns/NAME or /proc/PID/ns/net"
            ));
        }
        let found = place(netns).map_err(|error| format!("{path}: {error}"))?;
        if self.nobodys.contains(&found) {
            return Err(format!(
                "{path} is the network of the machine or of the node itself, which is no pod's"
            ));
        }
        let is_taken = |pod: &&Pod| pod.place == found && pod.state != PodState::Releasing;
        let taken = self.all().find(is_taken);
        if let Some(other) = taken.filter(|other| other.workload != *workload) {
            let other = &other.workload;
            return Err(format!("{path} is the namespace of {other} already"));
        }
        let others = |pod: &&Pod| pod.workload != *workload && pod.state != PodState::Releasing;
        let owner = |address| {
            let mut others = self.all().filter(others);
            others.find(|pod| pod.addresses.contains(address))
        };
        let addresses = addresses(netns)?.addresses;
        // One of its own is enough: pods may have some in common, such as that of a bridge of containers in each.
        match addresses.iter().map(owner).collect::<Option<Vec<_>>>() {
            Some(owners) if let [other, ..] = *owners => Err(format!(
                "{path}: no address of it is its own: one is that of {} already; if that pod is gone, heddle release \
                 {}",
                other.workload, other.workload
            )),
            _ => Ok(()),
        }
    }

    /// Enrols a pod: its connections are held until the proxy serves it.
    pub(super) fn enrol(
        &mut self,
        workload: WorkloadName,
        path: PathBuf,
        netns: File,
        exclude: Exclude,
        fate: Fate,
    ) -> Result<PodId, String> {
        self.check(&workload, &path, &netns)?;
        self.add(workload, Some(path), netns, exclude, fate)
    }

    /// Enrols a pod again after the holder was restarted.
    pub(super) fn recall(&mut self, pod: Remembered) -> Result<PodId, String> {
        let netns = pod.open()?;
        let id = self.enrol(pod.workload, pod.netns, netns, pod.exclude, pod.fate)?;
        if pod.filtered != Some(false) {
            self.clear_filters(id);
        }
        Ok(id)
    }

    /// Removes what a holder with packet filters has left in a pod that programs steer by now: rules that would
    /// refuse it once it is released.
    pub(super) fn clear_filters(&mut self, id: PodId) {
        if self.hooks.kind() == hooks::Kind::Nft {
            return;
        }
        let Some(pod) = self.pods.get_mut(&id) else {
            return;
        };
        match hooks::clear_filters(pod.netns.as_fd()) {
            Ok(true) => {
                tracing::info!(workload = %pod.workload, "rules of the packet filter removed");
                if !pod.routed
                    && let Err(error) = routes::undo(pod.netns.as_fd())
                {
                    tracing::debug!(workload = %pod.workload, %error, "its routes stay");
                }
            }
            // Without the program there were none, most likely.
            Ok(false) | Err(HookError::Lacking { .. }) => {}
            Err(error) => {
                pod.filtered = true;
                tracing::error!(workload = %pod.workload, "rules of the packet filter stay: {error}");
            }
        }
    }

    /// Enrols the namespace that we are in ourselves.
    pub(super) fn enrol_own(
        &mut self,
        workload: WorkloadName,
        exclude: Exclude,
    ) -> Result<PodId, String> {
        let netns = File::open(OWN_NAMESPACE).map_err(|error| error.to_string())?;
        self.add(workload, None, netns, exclude, Fate::default())
    }

    fn add(
        &mut self,
        workload: WorkloadName,
        path: Option<PathBuf>,
        netns: File,
        exclude: Exclude,
        fate: Fate,
    ) -> Result<PodId, String> {
        if self.pods.len() >= MAX_PODS {
            return Err(format!("there are {MAX_PODS} pods here, which is the most"));
        }
        exclude.check()?;
        let id = PodId(self.next);
        // Before they are read, so that none is missed.
        let watch = self
            .watches
            .add(id, netns.as_fd())
            .map_err(|error| unaddressed(&error))?;
        let started = Instant::now();
        let found = addresses(&netns)?;
        let Divided {
            own: addresses,
            others,
            more,
        } = self.divided(id, found, &[]);
        let read = (not_before(started), None);
        if addresses.is_empty() {
            return Err("every address of its namespace is another pod's".to_owned());
        }
        let place = place(&netns).map_err(|error| format!("its namespace: {error}"))?;
        let (outbound, inbound) = self.listeners(&workload, netns.as_fd(), place)?;
        routes::turn_on_loopback(netns.as_fd()).map_err(|error| error.to_string())?;
        // Packet filters mark what they steer as well.
        let routed = self.hooks.kind() == hooks::Kind::Nft;
        if routed {
            routes::prepare(netns.as_fd()).map_err(|error| error.to_string())?;
        }
        self.next += 1;
        let hooked = hooks::Pod {
            id,
            netns: netns.as_fd(),
            addresses: &addresses,
            outbound: &outbound,
            inbound: &inbound,
            exclude: &exclude,
            fate,
        };
        if let Err(error) = self.hooks.enrol(&hooked) {
            let _ = routes::undo(netns.as_fd());
            return Err(error.to_string());
        }
        let pod = Pod {
            id,
            workload,
            is_found: path.as_ref().is_some_and(|path| leads_to(path, place)),
            path,
            netns,
            place,
            addresses,
            others: Vec::new(),
            more: 0,
            watch,
            read,
            exclude,
            outbound,
            inbound,
            state: PodState::Held,
            fate,
            routed,
            filtered: self.hooks.kind() == hooks::Kind::Nft,
            due: None,
        };
        self.pods.insert(id, pod);
        self.contest(id, others, more);
        Ok(id)
    }

    /// The listeners for a pod: those that are there while the same pod is being released, since nobody else
    /// can have their ports before.
    fn listeners(
        &self,
        workload: &WorkloadName,
        netns: BorrowedFd<'_>,
        here: Place,
    ) -> Result<(TcpListener, TcpListener), String> {
        let in_words = |error: io::Error| match error.kind() {
            io::ErrorKind::AddrInUse => format!(
                "{error}: a program of the pod listens there, where the mesh must (nsenter --net=… ss -ltnp says \
                 which); let it listen on another port, then enrol the pod again"
            ),
            _ => format!("its listeners: {error}"),
        };
        let Some(before) = self.all().filter(|pod| pod.place == here).last() else {
            return sockets::listeners(netns).map_err(in_words);
        };
        if before.workload != *workload {
            let before = &before.workload;
            return Err(format!(
                "its namespace was that of {before} a moment ago, whose last connections are still served: \
                 try again in {} seconds",
                DRAINS_WITHIN.as_secs()
            ));
        }
        let again = |listener: &TcpListener| listener.try_clone().map_err(in_words);
        Ok((again(&before.outbound)?, again(&before.inbound)?))
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
            sockets::may_speak(pod, family, source)?;
            if !pod.routed {
                let routed = routes::prepare(pod.netns.as_fd());
                routed.inspect_err(|error| {
                    tracing::error!(workload = %pod.workload, %error, "nobody can speak to a pod as its clients");
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
        pod.state = state;
        pod.fate = fate;
        said(self.hooks.serve(id, fate));
        is_news
    }

    /// Whose namespaces are not where they were any more.
    pub(super) fn vanished(&self) -> Vec<WorkloadName> {
        let is_gone = |pod: &&Pod| {
            let is_watched = pod.is_found && pod.state != PodState::Releasing;
            let path = pod.path.as_ref().filter(|_| is_watched);
            path.is_some_and(|path| !leads_to(path, pod.place))
        };
        let gone = self.all().filter(is_gone);
        gone.map(|pod| pod.workload.clone()).collect()
    }

    /// There is no proxy any more. One store in the kernel, for all pods.
    pub(super) fn proxy_died(&mut self) {
        said(self.hooks.died());
        for pod in self.pods.values_mut() {
            match pod.state {
                PodState::Serving => pod.state = PodState::Held,
                // Nobody is left who could drain it.
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

    /// When the next released pod is over, or a pod's addresses are to be read.
    pub(super) fn due(&self) -> Option<Instant> {
        let due = self.all().flat_map(|pod| [pod.due, pod.read.1]);
        due.flatten().min()
    }

    /// The released pods that are over.
    pub(super) fn overdue(&self, now: Instant) -> Vec<PodId> {
        let is_over = |pod: &&Pod| pod.due.is_some_and(|due| due <= now);
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

/// The addresses of a pod, at least one.
fn addresses(netns: &File) -> Result<Found, String> {
    let found = sockets::addresses(netns.as_fd()).map_err(|error| unaddressed(&error))?;
    match found.addresses.is_empty() {
        true => Err(
            "its namespace has no address yet but loopback and link-local ones: it can be enrolled when it has"
                .to_owned(),
        ),
        false => Ok(found),
    }
}

/// Why a namespace's addresses are not known.
fn unaddressed(error: &io::Error) -> String {
    match Errno::from_io_error(error) {
        // From setns(2).
        Some(Errno::INVAL) => "it is a namespace of another kind than network".to_owned(),
        _ => format!("its addresses: {error}"),
    }
}

/// Whether it is a namespace at all: of which kind is found out by entering it.
pub(super) fn is_namespace(file: &File) -> bool {
    fstatfs(file).is_ok_and(|found| found.f_type == NSFS_MAGIC)
}

/// Whether a path leads to a namespace. One that cannot be looked at may.
fn leads_to(path: &Path, place: Place) -> bool {
    match stat(path) {
        Ok(found) => (found.st_dev, found.st_ino) == place,
        Err(error) => error != Errno::NOENT,
    }
}

pub(super) fn place(namespace: impl AsFd) -> io::Result<Place> {
    let found = fstat(namespace)?;
    Ok((found.st_dev, found.st_ino))
}
