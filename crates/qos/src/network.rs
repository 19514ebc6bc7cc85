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

mod follow;
pub mod held;
pub mod keeper;
pub mod kernel;
mod links;
mod netlink;
mod program;
mod snapshot;
mod sweep;
pub mod system;
#[cfg(test)]
mod testing;
#[cfg(test)]
mod tests;
mod thread;

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use heddle_model::{ControlGroup, PacketMark};

use self::held::{Held, Key};
use self::keeper::{Keeper, Restored};
use self::kernel::{ClassBytes, Kernel, Link, LinkBytes};
pub use self::snapshot::{InterfaceRates, Snapshot};
pub use self::thread::Thread;
use crate::arbiter::journal::{Log, Store};
use crate::controllers::bandwidth::{self, Bandwidth};
use crate::counts::Counts;
use crate::now::Now;

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
/// How often it is looked whether filters are still there: more costly than to look at queueing disciplines.
const FILTERS: Duration = Duration::from_secs(10);
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

/// A part that is left alone.
#[derive(Debug)]
struct Pause {
    until: Duration,
    /// The reason, as in output.
    why: String,
}

/// The host's end of an offline pod's interface.
#[derive(Debug)]
struct PodLink {
    link: Link,
    /// Whether its root is ours.
    is_shaped: bool,
    rate: u64,
    bytes: Option<LinkBytes>,
    /// When it last carried something.
    heard: Duration,
}

/// The bandwidth of one node. Like the agent it has no thread and no clock: its owner calls [`Network::tick`].
#[derive(Debug)]
pub struct Network<K, S> {
    settings: Settings,
    keeper: Keeper<K, S>,
    pods: Vec<OfflinePod>,
    uplinks: Vec<Uplink>,
    links: Vec<PodLink>,
    /// Interfaces of the settings that are not there, which was said, and why.
    missing: BTreeMap<String, String>,
    /// What all pods of the node receive from others.
    receiving: Bandwidth,
    /// Bytes that online and offline pods have received, as far as interfaces tell.
    received: ClassBytes,
    /// Parts that are left alone.
    left_alone: BTreeMap<Key, Pause>,
    swept: Option<Duration>,
    checked_filters: Option<Duration>,
    /// Parts that are known to be as they should, during a sweep.
    unchanged: BTreeSet<Key>,
    /// When offline pods last sent or received something.
    heard: Duration,
    /// When pods were last looked at that are silent.
    looked_at_silent: Duration,
    /// What was done and refused.
    counts: Counts,
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
            missing: BTreeMap::new(),
            received: ClassBytes::default(),
            left_alone: BTreeMap::new(),
            swept: None,
            checked_filters: None,
            unchanged: BTreeSet::new(),
            heard: Duration::ZERO,
            looked_at_silent: Duration::ZERO,
            counts: Counts::default(),
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
            self.put_back(&key, &restored);
        }
        is_done
    }

    /// Everything that is not as it was found.
    pub fn held(&self) -> &BTreeMap<Key, Held> {
        self.keeper.held()
    }
    /// Counts and says what became of a part that was put back.
    fn put_back(&mut self, key: &Key, restored: &Restored) {
        match restored {
            Restored::Done => {
                self.counts.writes += 1;
                tracing::info!("the {key} is as it was found");
            }
            Restored::Gone => tracing::debug!("the {key} is gone"),
            Restored::Foreign(what) => {
                self.counts.foreign += 1;
                tracing::warn!("another program changed the {key} to {what}, which stays");
            }
            Restored::Failed(error) => {
                self.counts.failed += 1;
                tracing::error!("the {key} cannot be put back: {error}");
            }
        }
    }
}
