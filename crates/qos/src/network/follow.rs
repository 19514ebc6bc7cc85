//! Rates that follow what is sent and received.

use super::held::{Held, Key};
use super::kernel::{ClassBytes, Kernel, Link};
use super::{Network, SILENT, SILENT_AFTER, STEP_PART};
use crate::arbiter::journal::Store;
use crate::counts::Counts;
use crate::now::Now;

impl<K: Kernel, S: Store<Key, Held>> Network<K, S> {
    /// Lets rates follow what was sent and received.
    pub(super) fn follow(&mut self, now: Now) {
        let mut is_gone = false;
        let mut received = 0;
        for uplink in &mut self.uplinks {
            let kernel = self.keeper.kernel();
            let Ok(bytes) = kernel.class_bytes(uplink.link.index) else {
                is_gone = true;
                continue;
            };
            if bytes.offline != uplink.offline {
                uplink.offline = bytes.offline;
                self.heard = now.since;
            }
            let rate = uplink.sending.step(now.since, bytes.online, bytes.offline);
            let to = (&uplink.link, rate);
            is_gone |= !set_rate(kernel, to, &mut uplink.rate, &mut self.counts);
            if let Ok(bytes) = kernel.link_bytes(uplink.link.index) {
                let before = uplink.received.replace(bytes.received);
                received += bytes
                    .received
                    .saturating_sub(before.unwrap_or(bytes.received));
            }
        }
        is_gone |= self.follow_pods(now, received);
        // The next tick looks what has become of it.
        if is_gone {
            self.swept = None;
        }
    }

    /// Lets the rates at which pods receive follow. `received` are bytes that the node has received since the last time.
    fn follow_pods(&mut self, now: Now, received: u64) -> bool {
        let (mut offline, mut active) = (0, 0);
        // Silent pods are looked at less often: there may be many.
        let is_slow = now.since.saturating_sub(self.looked_at_silent) >= SILENT;
        if is_slow {
            self.looked_at_silent = now.since;
        }
        for pod in &mut self.links {
            let is_silent = now.since.saturating_sub(pod.heard) >= SILENT_AFTER;
            if is_silent && !is_slow {
                continue;
            }
            let Ok(bytes) = self.keeper.kernel().link_bytes(pod.link.index) else {
                continue;
            };
            let before = pod.bytes.replace(bytes).unwrap_or(bytes);
            // The host's end sends what the pod receives.
            let taken = bytes.sent.saturating_sub(before.sent);
            offline += taken;
            active += u64::from(taken > 0);
            if bytes != before {
                pod.heard = now.since;
                self.heard = now.since;
            }
        }
        // What pods of the node send each other has not come over an interface of the node.
        self.received.online += received.saturating_sub(offline);
        self.received.offline += offline;
        let ClassBytes { online, offline } = self.received;
        let rate = self.receiving.step(now.since, online, offline);
        // A pod that begins to receive gets its share at the next look.
        let share = (rate / active.max(1)).max(1);
        let mut is_gone = false;
        for pod in self.links.iter_mut().filter(|pod| pod.is_shaped) {
            let (kernel, to) = (self.keeper.kernel(), (&pod.link, share));
            is_gone |= !set_rate(kernel, to, &mut pod.rate, &mut self.counts);
        }
        is_gone
    }
}

/// Sets a rate that differs enough from the one in force. Returns whether the class is still there.
fn set_rate<K: Kernel>(
    kernel: &mut K,
    (link, rate): (&Link, u64),
    in_force: &mut u64,
    counts: &mut Counts,
) -> bool {
    if rate.abs_diff(*in_force) <= *in_force / STEP_PART {
        return true;
    }
    match kernel.set_rate(link.index, rate) {
        Ok(()) => {
            *in_force = rate;
            counts.writes += 1;
            true
        }
        Err(error) => {
            tracing::debug!("the rate of {link} cannot be set to {rate}: {error}");
            false
        }
    }
}
