//! Ends unanswered connection attempts that began before a pod was enrolled, or while no proxy served it.

use std::net::SocketAddr;
use std::os::fd::AsFd;
use std::time::{Duration, Instant};

use super::{EnrolledPod, Pods};
use crate::hooks::Range;
use crate::{PodId, dials};

/// How long connection attempts from before may stay unanswered after the hooks are in place: a server outside the
/// mesh answers sooner.
pub(super) const ANSWERED_WITHIN: Duration = Duration::from_millis(100);
/// Limit of pods checked before other events get their turn: each takes the kernel up to a millisecond.
const BATCH: usize = 8;

impl Pods {
    /// Ends unanswered connection attempts to the mesh, for all pods that are due.
    pub(in crate::holder) fn end_dials(&mut self, now: Instant) {
        let is_due = |pod: &&mut EnrolledPod| pod.begun.is_some_and(|due| due <= now);
        let ranges = &self.ranges;
        for pod in self.pods.values_mut().filter(is_due).take(BATCH) {
            pod.begun = None;
            pod.end_dials(ranges);
        }
    }

    /// The same at once for one pod, before its proxy makes connections from the same namespace.
    pub(super) fn end_dials_of(&mut self, pod: PodId) {
        if let Some(pod) = self.pods.get_mut(&pod) {
            pod.begun = None;
            pod.end_dials(&self.ranges);
        }
    }
}

impl EnrolledPod {
    fn end_dials(&self, ranges: &[Range]) {
        match dials::end(self.netns.as_fd(), |to| self.is_carried(to, ranges)) {
            Ok(0) => {}
            Ok(ended) => tracing::info!(
                workload = %self.workload,
                ended,
                "unanswered connection attempts of a pod to the mesh, from before it was enrolled or served, were ended"
            ),
            Err(error) => tracing::debug!(
                workload = %self.workload,
                %error,
                "cannot end unanswered connection attempts of a pod from before it was enrolled or served"
            ),
        }
    }

    /// Whether the hooks would have steered a connection to `to`.
    fn is_carried(&self, to: SocketAddr, ranges: &[Range]) -> bool {
        let ip = to.ip();
        let is_port =
            |ports: &crate::PortRange| (ports.first()..=ports.last()).contains(&to.port());
        let exclude = &self.exclude;
        if ip.is_loopback()
            || self.addresses.contains(&ip)
            || exclude.outbound_ports.iter().any(is_port)
            || exclude.outbound_networks.iter().any(|it| it.contains(ip))
        {
            return false;
        }
        let within = ranges.iter().filter(|range| range.network.contains(ip));
        let longest = within.max_by_key(|range| (range.network.prefix(), !range.inside));
        longest.is_some_and(|range| range.inside)
    }
}
