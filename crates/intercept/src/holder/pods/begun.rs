//! Dials that began before a pod was enrolled, or while no proxy served it, and that get no answer.

use std::net::SocketAddr;
use std::os::fd::AsFd;
use std::time::{Duration, Instant};

use super::{EnrolledPod, Pods};
use crate::hooks::Range;
use crate::{PodId, dials};

/// How long after a pod has got its hooks a dial that began before may be without an answer: a server beside the mesh
/// answers in a moment.
pub(super) const ANSWERED_WITHIN: Duration = Duration::from_millis(100);
/// Pods that are looked at before others get their turn: it takes the kernel up to a millisecond for each.
const BATCH: usize = 8;

impl Pods {
    /// Ends the dials of pods that have had hooks for a moment, where those go to the mesh and are not answered.
    pub(in crate::holder) fn end_dials(&mut self, now: Instant) {
        let is_due = |pod: &&mut EnrolledPod| pod.begun.is_some_and(|due| due <= now);
        let ranges = &self.ranges;
        for pod in self.pods.values_mut().filter(is_due).take(BATCH) {
            pod.begun = None;
            pod.end_dials(ranges);
        }
    }

    /// The same at once, for a pod whose proxy will dial from its namespace as well.
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
                "dials of a pod to the mesh that began before it was enrolled, and had no answer, were ended"
            ),
            Err(error) => tracing::debug!(
                workload = %self.workload,
                %error,
                "dials of a pod that began before it was enrolled are left to themselves"
            ),
        }
    }

    /// Whether the mesh would carry what is dialled: hooks would have steered it.
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
