//! Enrollment of pods: checks of a namespace, and what is created in it.

use std::fs::File;
use std::io;
use std::net::TcpListener;
use std::os::fd::{AsFd, BorrowedFd};
use std::path::{Path, PathBuf};
use std::time::Instant;

use heddle_model::WorkloadName;
use rustix::io::Errno;

use super::addresses::{Divided, not_before};
use super::begun::ANSWERED_WITHIN;
use super::place::{OWN_NAMESPACE, Place, is_namespace, leads_to, place, worth};
use super::{DRAINS_WITHIN, EnrolledPod, Pods};
use crate::holder::memory::Remembered;
use crate::holder::sockets::{self, Found};
use crate::hooks::{self, HookError};
use crate::request::PodState;
use crate::{Exclude, Fate, PodId, routes};

/// Limit of pods on a node.
const MAX_PODS: usize = 4_096;

impl Pods {
    /// Checks that a namespace may be enrolled as the pod of a workload.
    pub(in crate::holder) fn check(
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
        if self.not_pods.contains(&found) {
            return Err(format!(
                "{path} is the network of the machine or of the node itself, which is no pod's"
            ));
        }
        let is_taken = |pod: &&EnrolledPod| pod.place == found && pod.state != PodState::Releasing;
        let taken = self.all().find(is_taken);
        if let Some(other) = taken.filter(|other| other.workload != *workload) {
            let other = &other.workload;
            return Err(format!("{path} is the namespace of {other} already"));
        }
        let others =
            |pod: &&EnrolledPod| pod.workload != *workload && pod.state != PodState::Releasing;
        let owner = |address| {
            let mut others = self.all().filter(others);
            others.find(|pod| pod.addresses.contains(address))
        };
        let addresses = addresses(netns)?.addresses;
        // One address of its own is enough: pods may share others, such as that of a container bridge inside each.
        match addresses.iter().map(owner).collect::<Option<Vec<_>>>() {
            Some(owners) if let [other, ..] = *owners => Err(format!(
                "{path}: all its addresses belong to other pods, one to {}; if that pod is gone, heddle unenroll \
                 {}",
                other.workload, other.workload
            )),
            _ => Ok(()),
        }
    }

    /// Called when an operator enrolls an enrolled pod again: stores the new path of its namespace, unless the known
    /// path is better. Returns the known path if that is kept.
    pub(in crate::holder) fn find_by(
        &mut self,
        workload: &WorkloadName,
        path: &Path,
        netns: &File,
        exclude: &Exclude,
    ) -> Option<PathBuf> {
        let id = self.of(workload)?.id;
        let pod = self.pods.get_mut(&id)?;
        if !pod.is_in(netns) || pod.exclude != *exclude {
            return None;
        }
        let known = pod.path.as_mut().filter(|known| known.as_path() != path)?;
        if worth(path, pod.place) < worth(known, pod.place) {
            return Some(known.clone());
        }
        tracing::info!(%workload, before = %known.display(), path = %path.display(), "a pod has a new path");
        path.clone_into(known);
        pod.is_found = leads_to(path, pod.place);
        None
    }

    /// Enrolls a pod. Its connections wait until the proxy serves it.
    pub(in crate::holder) fn enroll(
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

    /// Enrolls a pod again after the holder was restarted.
    pub(in crate::holder) fn recall(&mut self, pod: Remembered) -> Result<PodId, String> {
        let netns = pod.open()?;
        let id = self.enroll(pod.workload, pod.netns, netns, pod.exclude, pod.fate)?;
        if pod.filtered != Some(false) {
            self.clear_filters(id);
        }
        Ok(id)
    }

    /// Removes packet filter rules that an earlier holder has left in a pod now steered by BPF programs: they would
    /// refuse its traffic once it is released.
    pub(in crate::holder) fn clear_filters(&mut self, id: PodId) {
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
                    tracing::debug!(workload = %pod.workload, %error, "cannot remove its routes");
                }
            }
            // Without `nft` there were most likely no rules.
            Ok(false) | Err(HookError::Lacking { .. }) => {}
            Err(error) => {
                pod.filtered = true;
                tracing::error!(workload = %pod.workload, "cannot remove packet filter rules: {error}");
            }
        }
    }

    /// Enrolls the holder's own namespace.
    pub(in crate::holder) fn enroll_own(
        &mut self,
        workload: WorkloadName,
        exclude: Exclude,
    ) -> Result<PodId, String> {
        let netns = File::open(OWN_NAMESPACE).map_err(|error| error.to_string())?;
        let id = self.add(workload, None, netns, exclude, Fate::default())?;
        self.end_dials_of(id);
        Ok(id)
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
            return Err(format!("the limit of {MAX_PODS} pods is reached"));
        }
        exclude.check()?;
        let id = PodId(self.next);
        // The watch starts before addresses are read, so that no change is missed.
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
        // Packet filter rules need the routes, too: they mark inbound packets with the same mark.
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
        if let Err(error) = self.hooks.enroll(&hooked) {
            let _ = routes::undo(netns.as_fd());
            return Err(error.to_string());
        }
        let pod = EnrolledPod {
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
            begun: Some(Instant::now() + ANSWERED_WITHIN),
            meets_fate: false,
        };
        self.pods.insert(id, pod);
        self.contest(id, others, more);
        Ok(id)
    }

    /// Returns the listeners for a pod. While the same pod is still being released, its old listeners are shared,
    /// because they still occupy the ports.
    fn listeners(
        &self,
        workload: &WorkloadName,
        netns: BorrowedFd<'_>,
        here: Place,
    ) -> Result<(TcpListener, TcpListener), String> {
        let in_words = |error: io::Error| match error.kind() {
            io::ErrorKind::AddrInUse => format!(
                "{error}: a program of the pod listens there, where the mesh must (nsenter --net=… ss -ltnp says \
                 which); let it listen on another port, then enroll the pod again"
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
}

/// Reads the addresses of a pod. Having none is an error.
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

/// Error message when a namespace's addresses cannot be read.
fn unaddressed(error: &io::Error) -> String {
    match Errno::from_io_error(error) {
        // setns(2) returns this for a namespace of another kind.
        Some(Errno::INVAL) => "it is a namespace of another kind than network".to_owned(),
        _ => format!("its addresses: {error}"),
    }
}
