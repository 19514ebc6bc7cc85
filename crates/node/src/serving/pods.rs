//! The pods of this node whose traffic is intercepted.
//!
//! ```text
//!  enrolled ─▶ waits for its workload in the mesh ─▶ served ─▶ released: drains ─▶ gone
//!                  └─ waited too long: served, and refused with a reason
//! ```
//!
//! Until a pod is served, its connections wait in the kernel's backlog: the proxy must know the pod's identity and
//! policies before it accepts one.

use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::net::{IpAddr, TcpListener};
use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::Context;
use heddle_intercept::hooks::FullTables;
use heddle_intercept::{Client, Event, Fate, PodId, Tell, Teller};
use heddle_model::{Cidr, Mesh, Mode, Workload, WorkloadName};
use heddle_proxy::{Entry, Proxy};

use super::Held;
use crate::exit::Failure;
use crate::status::InterceptionStatus;

/// How long a pod's connections wait for its workload to appear in the mesh. After that they are refused, with a
/// reason, until it appears.
const HELD_FOR: Duration = Duration::from_secs(5);
/// How long a released pod's listeners still accept, at least.
const DRAIN: Duration = Duration::from_secs(1);
/// Wait before a message to the holder is repeated when the channel is full.
const TOLD_AGAIN: Duration = Duration::from_millis(100);
/// Most addresses outside the mesh's ranges that are logged by name.
const NAMED: usize = 5;
/// First listener number for pods; all other listeners count from 0.
const FIRST_LISTENER: u64 = 1 << 62;

/// The pods that the holder has announced.
pub(super) struct Pods {
    teller: Teller,
    pods: BTreeMap<PodId, Pod>,
    /// Whether the holder has announced all pods that existed when this proxy started. Until then no pod is served: it
    /// could call a pod that this proxy does not know yet, and the proxy would dial that one from outside its network
    /// namespace.
    is_recalled: bool,
    /// The mesh's address ranges as the hooks know them (`true`), and exceptions to them (`false`).
    ranges: Vec<(Cidr, bool)>,
    /// Services and workloads outside `ranges` that were logged.
    outside: BTreeSet<String>,
    /// Whether a message to the holder has to be repeated, because the channel was full.
    is_untold: bool,
    /// The holder's own socket for operators.
    holder_socket: PathBuf,
    /// Connections for which a table of the hooks was full.
    full: FullTables,
}

/// The workload of a pod, if this node's proxy serves it: not if it has an Envoy of its own.
fn served_here<'m>(mesh: &'m Mesh, name: &WorkloadName) -> Option<&'m Workload> {
    let known = mesh.workload(name)?;
    (!known.proxy.is_envoy()).then_some(known)
}

struct Pod {
    workload: WorkloadName,
    enrolled: Instant,
    /// Outbound and inbound listener; `None` once they are served.
    listeners: Option<(TcpListener, TcpListener)>,
    /// The last message to the holder about this pod.
    told: Option<Tell>,
}

impl Pods {
    /// Connects to the holder and reports this proxy as ready.
    pub(super) fn new(held: Held, proxy: &Proxy) -> Result<(Client, Pods), Failure> {
        let Held {
            channel,
            ranges,
            holder_socket,
        } = held;
        let (client, sockets) = Client::new(channel).context("cannot talk to the holder")?;
        proxy.sockets(sockets);
        let teller = client.teller();
        tell(&teller, Tell::Ready);
        let pods = Pods {
            teller,
            pods: BTreeMap::new(),
            is_recalled: false,
            ranges,
            outside: BTreeSet::new(),
            is_untold: false,
            holder_socket,
            full: FullTables::default(),
        };
        Ok((client, pods))
    }

    /// Handles an event from the holder.
    pub(super) fn happened(&mut self, event: Event, mesh: &Mesh, proxy: &Proxy) {
        match event {
            Event::Enrolled {
                pod,
                workload,
                outbound,
                inbound,
                ..
            } => {
                tracing::info!(%workload, %pod, "a pod is enrolled");
                let enrolled = Pod {
                    workload,
                    enrolled: Instant::now(),
                    listeners: Some((outbound, inbound)),
                    told: None,
                };
                self.pods.insert(pod, enrolled);
                self.say_where(proxy);
                self.follow(mesh, proxy);
            }
            Event::Recalled => {
                self.is_recalled = true;
                self.follow(mesh, proxy);
            }
            Event::Full(full) => self.full = full,
            Event::Released { pod } => self.released(pod, proxy),
        }
    }

    /// Whether the holder has announced all pods that existed when this proxy started.
    pub(super) fn is_recalled(&self) -> bool {
        self.is_recalled
    }

    pub(super) fn status(&self) -> InterceptionStatus {
        let all = self.pods.values();
        let is_served = |pod: &&Pod| matches!(pod.told, Some(Tell::Serving { .. }));
        let serving = all.filter(is_served).count();
        InterceptionStatus {
            holder_socket: self.holder_socket.clone(),
            serving: serving as u64,
            held: (self.pods.len() - serving) as u64,
            full: self.full,
        }
    }

    /// Serves the pods whose workloads are in the mesh, and those that have waited for [`HELD_FOR`].
    pub(super) fn follow(&mut self, mesh: &Mesh, proxy: &Proxy) {
        self.say_outside(mesh);
        if !self.is_recalled {
            return;
        }
        let mut served = Vec::new();
        for (id, pod) in &mut self.pods {
            let is_known = served_here(mesh, &pod.workload).is_some();
            if !is_known && pod.enrolled.elapsed() < HELD_FOR {
                continue;
            }
            if let Some(listeners) = pod.listeners.take() {
                served.push((*id, pod.workload.clone(), listeners));
            }
        }
        for (id, caller, (outbound, inbound)) in served {
            let workload = caller.clone();
            let [out, arriving] = listener_ids(id);
            proxy.listen_in(id, out, outbound, Entry::Outbound { caller });
            proxy.listen_in(id, arriving, inbound, Entry::Arriving { workload });
        }
        self.say_fates(mesh);
    }

    /// Tells the holder which pods are served, and how to treat their traffic when this proxy is gone.
    fn say_fates(&mut self, mesh: &Mesh) {
        self.is_untold = false;
        for (id, pod) in &mut self.pods {
            let tells = match served_here(mesh, &pod.workload) {
                None => Tell::Holding { pod: *id },
                Some(workload) => {
                    let is_guarded = workload.mode == Mode::Strict || !workload.policies.is_empty();
                    let fate = if is_guarded { Fate::Refuse } else { Fate::Pass };
                    Tell::Serving { pod: *id, fate }
                }
            };
            if pod.listeners.is_some() || pod.told == Some(tells) {
                continue;
            }
            if !tell(&self.teller, tells) {
                self.is_untold = true;
                continue;
            }
            pod.told = Some(tells);
            if matches!(tells, Tell::Holding { .. }) {
                tracing::warn!(
                    workload = %pod.workload,
                    "a pod is enrolled that no workload of this node's mesh is, or one with an Envoy of its \
                     own: what it dials is refused, and no caller reaches it, until the control plane has such \
                     a workload on this node, or the pod is released"
                );
            }
        }
    }

    /// Logs the Services and workloads, and the ranges of the mesh, whose addresses pods dial past the mesh, when that list
    /// changes.
    fn say_outside(&mut self, mesh: &Mesh) {
        let is_inside = |address: IpAddr| {
            let ranges = self
                .ranges
                .iter()
                .filter(|(cidr, _)| cidr.contains(address));
            let longest = ranges.max_by_key(|(cidr, inside)| (cidr.prefix(), !inside));
            longest.is_some_and(|(_, inside)| *inside)
        };
        let services = mesh.services.iter().flat_map(|service| {
            let addresses = service.addresses.iter();
            let outside = addresses.filter(|address| !is_inside(**address));
            outside.map(|address| format!("Service {} at {address}", service.name))
        });
        let workloads = mesh.workloads.iter();
        let workloads = workloads.filter(|workload| !is_inside(workload.address));
        let workloads = workloads.map(|one| format!("workload {} at {}", one.name, one.address));
        let ranges = mesh.address_ranges.iter();
        let ranges = ranges.filter(|range| {
            !self.ranges.iter().any(|(own, inside)| {
                *inside && own.prefix() <= range.prefix() && own.contains(range.network())
            })
        });
        let ranges = ranges.map(|range| format!("the range {range}"));
        let outside: BTreeSet<String> = ranges.chain(services).chain(workloads).collect();
        if outside != self.outside && !outside.is_empty() {
            let named: Vec<&str> = outside.iter().take(NAMED).map(String::as_str).collect();
            tracing::warn!(
                addresses = outside.len(),
                "not within --mesh-range, so that pods' calls to them do not go through the mesh: {}",
                named.join(", ")
            );
        }
        self.outside = outside;
    }

    /// Serves pods whose wait is over, and repeats messages for which the channel was full.
    pub(super) fn look(&mut self, mesh: &Mesh, proxy: &Proxy) {
        if self.is_untold || self.pods.values().any(|pod| pod.listeners.is_some()) {
            self.follow(mesh, proxy);
        }
    }

    /// The pod gets no new connections: those in the backlog are served, then its listeners are closed.
    fn released(&mut self, id: PodId, proxy: &Proxy) {
        let Some(pod) = self.pods.remove(&id) else {
            return;
        };
        tracing::info!(workload = %pod.workload, pod = %id, "a pod is released");
        let drained = listener_ids(id).map(|listener| proxy.unlisten_drained(listener, DRAIN));
        let teller = self.teller.clone();
        let was_served = pod.listeners.is_none();
        tokio::spawn(async move {
            // Connections that are being served may still need sockets in the pod's namespace: the holder keeps it
            // until `Drained`.
            if was_served {
                for drained in drained {
                    drained.await;
                }
            }
            while !tell(&teller, Tell::Drained { pod: id }) {
                tokio::time::sleep(TOLD_AGAIN).await;
            }
        });
        self.say_where(proxy);
    }

    /// The proxy accepts nothing new from now on: the holder applies each pod's fate. If it cannot be told, it sees the
    /// proxy's end later.
    pub(super) fn stopping(&self) {
        tell(&self.teller, Tell::Stopping);
    }

    /// Tells the proxy which pod each workload runs in, including pods that are not served yet.
    fn say_where(&self, proxy: &Proxy) {
        let places = self
            .pods
            .iter()
            .map(|(id, pod)| (pod.workload.clone(), *id));
        proxy.pods(Arc::new(places.collect()));
    }
}

/// The numbers of a pod's two listeners.
fn listener_ids(pod: PodId) -> [u64; 2] {
    let first = FIRST_LISTENER + 2 * u64::from(pod.0);
    [first, first + 1]
}

/// Sends a message to the holder. Returns `false` when the channel is full and the message has to be repeated.
fn tell(teller: &Teller, tell: Tell) -> bool {
    match teller.tell(tell) {
        Err(error) if error.kind() == io::ErrorKind::WouldBlock => false,
        Err(error) => {
            tracing::error!(%error, ?tell, "cannot send a message to the holder");
            true
        }
        Ok(()) => true,
    }
}
