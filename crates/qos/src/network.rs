//! Bandwidth: online pods are never limited, and offline pods share what is left of each interface of the node.
//!
//! ```text
//!   offline pod            this node                                          network
//!   ┌─────────┐   ┌───────────────────────────────────────────────────┐
//!   │    eth0 ├───┤ veth ── clsact: mark ──► routing, ──► eth0: htb ───┼───►  unmarked: no limit
//!   │         │   │                          overlays      4ed1:1, :2  │      marked: one rate for all
//!   │         │◄──┤ veth: htb, one rate ◄─── routing ◄──── eth0        │◄───
//!   └─────────┘   └───────────────────────────────────────────────────┘
//! ```
//!
//! What an offline pod sends is marked at the host's end of its interface, before an overlay hides who sent it, and the
//! kernel keeps the mark when it wraps the packet. Sockets of the mesh's proxy that work for an offline pod have the same
//! mark. At the node's own interface a class of its own paces what is marked. What a pod receives is paced at the host's
//! end of its interface: its senders slow down then.
//!
//! Every 10 ms the [controller](crate::controllers::bandwidth) looks at what both classes have sent, and sets the rate. While
//! no offline pod sends or receives anything, it looks ten times a second.
//!
//! [`keeper`] is the only writer. [`system`] speaks to the kernel by netlink, [`kernel`] says what is asked of it.

pub mod held;
pub mod keeper;
pub mod kernel;
mod links;
mod netlink;
mod program;
pub mod system;
#[cfg(test)]
mod testing;
#[cfg(test)]
mod tests;
mod thread;

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use heddle_model::{ControlGroup, PacketMark};

use self::held::{Held, Key, Part};
use self::keeper::{About, Keeper, Refusal, Restored};
use self::kernel::{ClassBytes, Kernel, Limited, Link, LinkBytes};
pub use self::thread::Thread;
use crate::agent::Now;
use crate::arbiter::journal::{Log, Store};
use crate::controllers::bandwidth::{self, Bandwidth};

/// The journal of the network.
pub type Journal = Log<Key, Held>;

/// What is limited, and how.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Settings {
    /// Interfaces of the node by which pods reach others.
    pub interfaces: Vec<String>,
    /// Rates of each of them.
    pub rates: bandwidth::Settings,
    /// The mark of what offline pods send.
    pub mark: PacketMark,
    /// Interfaces whose queueing discipline may be replaced even if another program chose it.
    pub replace: BTreeSet<String>,
}

/// An offline pod.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct OfflinePod {
    /// Its name, as in output: `namespace/name`.
    pub name: String,
    /// Its control group.
    pub group: ControlGroup,
}

/// How often interfaces and pods are looked at.
const SWEEP: Duration = Duration::from_secs(1);
/// How often rates are set while offline pods are silent.
const SILENT: Duration = Duration::from_millis(100);
/// How long offline pods are silent before rates are set less often.
const SILENT_AFTER: Duration = Duration::from_secs(1);
/// How long an interface is left alone that another program has changed, or the kernel refused to.
const LEFT_ALONE: Duration = Duration::from_secs(60);
/// A rate is set when it differs from the one in force by more than its part of this.
const STEP_PART: u64 = 50;

/// An interface of the node.
#[derive(Debug)]
struct Uplink {
    link: Link,
    sending: Bandwidth,
    /// The rate in force, in bytes per second.
    rate: u64,
    received: Option<u64>,
    /// Bytes of offline pods, those of the proxy for them among them.
    offline: u64,
}

/// The host's end of an offline pod's interface.
#[derive(Debug)]
struct PodLink {
    link: Link,
    /// Whether its root is ours.
    is_shaped: bool,
    rate: u64,
    bytes: Option<LinkBytes>,
}

/// The bandwidth of one node. Like the agent it has no thread and no clock: its owner calls [`Network::tick`].
#[derive(Debug)]
pub struct Network<K, S> {
    settings: Settings,
    keeper: Keeper<K, S>,
    pods: Vec<OfflinePod>,
    uplinks: Vec<Uplink>,
    links: Vec<PodLink>,
    /// What all pods of the node receive from others.
    receiving: Bandwidth,
    /// Bytes that online and offline pods have received, as far as interfaces tell.
    received: ClassBytes,
    /// Parts that are left alone, and until when.
    left_alone: BTreeMap<Key, Duration>,
    swept: Option<Duration>,
    /// When offline pods last sent or received something.
    heard: Duration,
}

impl<K: Kernel, S: Store<Key, Held>> Network<K, S> {
    /// The network of a node without offline pods. `held` is what an earlier process held: call [`Network::restore`]
    /// first.
    pub fn new(settings: Settings, kernel: K, store: S, held: BTreeMap<Key, Held>) -> Self {
        let keeper = Keeper::new(kernel, store, held, settings.replace.clone());
        let all = u64::try_from(settings.interfaces.len()).unwrap_or(1).max(1);
        let receiving = bandwidth::Settings {
            link: settings.rates.link.map(|link| link.saturating_mul(all)),
            ..settings.rates
        };
        Network {
            receiving: Bandwidth::new(receiving),
            settings,
            keeper,
            pods: Vec::new(),
            uplinks: Vec::new(),
            links: Vec::new(),
            received: ClassBytes::default(),
            left_alone: BTreeMap::new(),
            swept: None,
            heard: Duration::ZERO,
        }
    }

    /// Changes nothing from now on, and says what would be changed.
    pub fn rehearse(&mut self) {
        self.keeper.rehearse();
    }

    /// The offline pods of this node from now on. What was done for others is put back by the next tick.
    pub fn set_pods(&mut self, pods: Vec<OfflinePod>) {
        if self.pods != pods {
            self.pods = pods;
            self.swept = None;
        }
    }

    /// Does what is due, and returns how long nothing will be.
    pub fn tick(&mut self, now: Now) -> Duration {
        let since_sweep = self.swept.map(|last| now.since.saturating_sub(last));
        if since_sweep.is_none_or(|since| since >= SWEEP) {
            self.swept = Some(now.since);
            self.sweep(now);
        }
        if self.keeper.is_rehearsal() || self.uplinks.is_empty() && self.links.is_empty() {
            return SWEEP;
        }
        self.follow(now);
        match now.since.saturating_sub(self.heard) < SILENT_AFTER {
            true => bandwidth::INTERVAL,
            false => SILENT,
        }
    }

    /// Puts everything back, and returns whether all of it is.
    pub fn restore(&mut self) -> bool {
        self.uplinks.clear();
        self.links.clear();
        let mut is_done = true;
        for (key, _, restored) in self.keeper.restore_all() {
            is_done &= !matches!(restored, Restored::Failed(_));
            say(&key, &restored);
        }
        is_done
    }

    /// Everything that is not as it was found.
    pub fn held(&self) -> &BTreeMap<Key, Held> {
        self.keeper.held()
    }

    /// Brings interfaces to what they should have, and puts back what no pod wants any more.
    fn sweep(&mut self, now: Now) {
        self.left_alone.retain(|_, until| now.since < *until);
        let mut wanted = BTreeSet::new();
        let mut links = Vec::new();
        for pod in self.pods.clone() {
            let ends = match self.keeper.kernel().host_ends(&pod.group) {
                Ok(ends) => ends,
                Err(error) => {
                    tracing::debug!(pod = pod.name, "its interfaces are not known: {error}");
                    continue;
                }
            };
            for link in ends {
                self.mark(&link, &pod, now, &mut wanted);
                let is_shaped = self.shape_pod(&link, &pod, now, &mut wanted);
                let before = self.links.iter().find(|before| before.link == link);
                links.push(PodLink {
                    rate: before.map_or(0, |before| before.rate),
                    bytes: before.and_then(|before| before.bytes),
                    link,
                    is_shaped,
                });
            }
        }
        self.links = links;
        // An interface without offline pods behind it stays as it is.
        match self.links.is_empty() {
            true => self.uplinks.clear(),
            false => self.shape_uplinks(now, &mut wanted),
        }
        let unwanted = self
            .keeper
            .held()
            .keys()
            .filter(|key| !wanted.contains(*key));
        let mut unwanted: Vec<Key> = unwanted.cloned().collect();
        unwanted.sort_by_key(|key| key.part);
        for key in unwanted {
            let done = self.keeper.restore(&key);
            say(&key, &done);
        }
    }

    fn mark(&mut self, link: &Link, pod: &OfflinePod, now: Now, wanted: &mut BTreeSet<Key>) {
        let about = About {
            pod: &pod.name,
            why: "offline: what it sends is marked",
            since_s: now.unix_s,
        };
        let keys = [Part::Clsact, Part::Marker].map(|part| self.keeper.key(link, part));
        if keys.iter().any(|key| self.left_alone.contains_key(key)) {
            return;
        }
        let done = self.keeper.mark(link, self.settings.mark, about);
        // What is held of both is kept, even if only one could be done.
        wanted.extend(keys);
        self.leave_alone(done, now);
    }

    fn shape_pod(
        &mut self,
        link: &Link,
        pod: &OfflinePod,
        now: Now,
        wanted: &mut BTreeSet<Key>,
    ) -> bool {
        let about = About {
            pod: &pod.name,
            why: "offline: it receives what online pods leave",
            since_s: now.unix_s,
        };
        self.shape(link, Limited::All, about, now, wanted)
    }

    fn shape_uplinks(&mut self, now: Now, wanted: &mut BTreeSet<Key>) {
        let mut uplinks = Vec::new();
        for name in self.settings.interfaces.clone() {
            let link = match self.keeper.kernel().link(&name) {
                Ok(link) => link,
                Err(error) => {
                    tracing::debug!("the interface {name} of qos.network.interfaces: {error}");
                    continue;
                }
            };
            let about = About {
                pod: &name,
                why: "offline pods send what online pods leave",
                since_s: now.unix_s,
            };
            let limited = Limited::Marked(self.settings.mark);
            if !self.shape(&link, limited, about, now, wanted) {
                continue;
            }
            let at = self.uplinks.iter().position(|before| before.link == link);
            let before = at.map(|at| self.uplinks.swap_remove(at));
            uplinks.push(before.unwrap_or_else(|| Uplink {
                link,
                sending: Bandwidth::new(self.settings.rates),
                rate: self.settings.rates.lowest(),
                received: None,
                offline: 0,
            }));
        }
        self.uplinks = uplinks;
    }

    /// Gives an interface our root, and returns whether it has it.
    fn shape(
        &mut self,
        link: &Link,
        limited: Limited,
        about: About<'_>,
        now: Now,
        wanted: &mut BTreeSet<Key>,
    ) -> bool {
        let key = self.keeper.key(link, Part::Root);
        if self.left_alone.contains_key(&key) {
            return false;
        }
        let lowest = self.settings.rates.lowest();
        let done = self.keeper.shape(link, limited, lowest, about);
        // What it counts and its rate begin anew.
        if matches!(done, Ok(true)) {
            self.uplinks.retain(|uplink| uplink.link != *link);
            self.links.retain(|pod| pod.link != *link);
        }
        let is_there = self.leave_alone(done, now);
        if is_there {
            wanted.insert(key);
        }
        is_there
    }

    fn leave_alone(&mut self, done: Result<bool, Refusal>, now: Now) -> bool {
        let refusal = match done {
            Ok(_) => return true,
            Err(refusal) => refusal,
        };
        match &refusal {
            Refusal::Gone(_) => tracing::debug!("{refusal}"),
            Refusal::Foreign(key, _) | Refusal::Failed(key, _) => {
                tracing::warn!("{refusal}; it is tried again in {} s", LEFT_ALONE.as_secs());
                self.left_alone.insert(key.clone(), now.since + LEFT_ALONE);
            }
        }
        false
    }

    /// Lets rates follow what was sent and received.
    fn follow(&mut self, now: Now) {
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
            is_gone |= !set_rate(kernel, &uplink.link, &mut uplink.rate, rate);
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
        for pod in &mut self.links {
            let Ok(bytes) = self.keeper.kernel().link_bytes(pod.link.index) else {
                continue;
            };
            let before = pod.bytes.replace(bytes).unwrap_or(bytes);
            // The host's end sends what the pod receives.
            let taken = bytes.sent.saturating_sub(before.sent);
            offline += taken;
            active += u64::from(taken > 0);
            if bytes != before {
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
            is_gone |= !set_rate(self.keeper.kernel(), &pod.link, &mut pod.rate, share);
        }
        is_gone
    }
}

/// Sets a rate that differs enough from the one in force. Returns whether the class is still there.
fn set_rate<K: Kernel>(kernel: &mut K, link: &Link, in_force: &mut u64, rate: u64) -> bool {
    if rate.abs_diff(*in_force) <= *in_force / STEP_PART {
        return true;
    }
    match kernel.set_rate(link.index, rate) {
        Ok(()) => {
            *in_force = rate;
            true
        }
        Err(error) => {
            tracing::debug!("the rate of {link} cannot be set to {rate}: {error}");
            false
        }
    }
}

/// Says what became of a part that was put back.
fn say(key: &Key, restored: &Restored) {
    match restored {
        Restored::Done => tracing::info!("the {key} is as it was found"),
        Restored::Gone => tracing::debug!("the {key} is gone"),
        Restored::Foreign(what) => {
            tracing::warn!("another program changed the {key} to {what}, which stays");
        }
        Restored::Failed(error) => tracing::error!("the {key} cannot be put back: {error}"),
    }
}
