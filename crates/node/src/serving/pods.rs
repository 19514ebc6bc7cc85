//! The pods of this node whose traffic is intercepted.
//!
//! ```text
//!  enrolled ─▶ waits for its workload in the mesh ─▶ served ─▶ released: drains ─▶ gone
//!                  └─ waited too long: served, and refused with a reason
//! ```
//!
//! Until a pod is served, its connections wait in the kernel: none goes through the proxy before its
//! identity and policies are there.

use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::net::{IpAddr, TcpListener};
use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::Context;
use heddle_intercept::hooks::FullTables;
use heddle_intercept::{Cidr, Client, Event, Fate, PodId, Tell, Teller};
use heddle_model::{Mesh, Mode, WorkloadName};
use heddle_proxy::{Entry, Proxy};

use super::Held;
use crate::exit::Failure;
use crate::status::InterceptionStatus;

/// How long connections of a pod wait for its workload to be in the mesh. After that they are refused, with
/// a reason, until it is.
const HELD_FOR: Duration = Duration::from_secs(5);
/// How long the listeners of a released pod are still accepted from.
const DRAIN: Duration = Duration::from_secs(1);
/// How long to wait where the holder has no room for what it is to be told.
const TOLD_AGAIN: Duration = Duration::from_millis(100);
/// So many addresses outside of the mesh's ranges are named; of more only the number is.
const NAMED: usize = 5;
/// Where the numbers of pods' listeners begin: the others are counted from 0.
const FIRST_LISTENER: u64 = 1 << 62;

/// The pods, as the holder tells of them.
pub(super) struct Pods {
    teller: Teller,
    pods: BTreeMap<PodId, Pod>,
    /// Whether all pods are known that there were when this proxy was started. Before that none is served:
    /// it might call another that this proxy does not know as a pod yet, and go there from outside of it.
    is_recalled: bool,
    /// The addresses of which the hooks know that they are the mesh's, and exceptions to that (`false`).
    ranges: Vec<(Cidr, bool)>,
    /// Who was said to have addresses that are not among them.
    outside: BTreeSet<String>,
    /// Whether there was no room for something that the holder is to be told.
    is_untold: bool,
    /// Where operators ask the holder.
    holder_socket: PathBuf,
    /// How often the hooks had no room for a connection.
    full: FullTables,
}

struct Pod {
    workload: WorkloadName,
    enrolled: Instant,
    /// Until it is served.
    listeners: Option<(TcpListener, TcpListener)>,
    /// What the holder was told.
    told: Option<Tell>,
}

impl Pods {
    /// Listens to the holder.
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

    /// The holder says something.
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

    /// Whether all pods are known that there were when this proxy was started.
    pub(super) fn is_recalled(&self) -> bool {
        self.is_recalled
    }

    /// How the pods stand.
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

    /// Serves the pods whose workloads are in the mesh, or that have waited long enough.
    pub(super) fn follow(&mut self, mesh: &Mesh, proxy: &Proxy) {
        self.say_outside(mesh);
        if !self.is_recalled {
            return;
        }
        let mut served = Vec::new();
        for (id, pod) in &mut self.pods {
            let is_known = mesh.workload(&pod.workload).is_some();
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

    /// Tells the holder which pods are served, and what is to become of them without us.
    fn say_fates(&mut self, mesh: &Mesh) {
        self.is_untold = false;
        for (id, pod) in &mut self.pods {
            let tells = match mesh.workload(&pod.workload) {
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
                    "a pod is enrolled that no workload of this node's mesh is: what it dials is refused, and \
                     no caller reaches it, until the control plane has such a workload on this node"
                );
            }
        }
    }

    /// Says which Services and workloads have addresses that pods dial past the mesh, when that changes.
    fn say_outside(&mut self, mesh: &Mesh) {
        let is_inside = |address: IpAddr| {
            let ranges = self
                .ranges
                .iter()
                .filter(|(cidr, _)| cidr.contains(address));
            let longest = ranges.max_by_key(|(cidr, inside)| (cidr.prefix(), !inside));
            longest.is_some_and(|(_, inside)| *inside)
        };
        let services = mesh.services.iter();
        let services = services.flat_map(|service| {
            let addresses = service.addresses.iter();
            addresses.map(move |address| (format!("Service {}", service.name), *address))
        });
        let workloads = mesh.workloads.iter();
        let workloads =
            workloads.map(|workload| (format!("workload {}", workload.name), workload.address));
        let outside: BTreeSet<String> = services
            .chain(workloads)
            .filter(|(_, address)| !is_inside(*address))
            .map(|(what, address)| format!("{what} at {address}"))
            .collect();
        if outside != self.outside && !outside.is_empty() {
            let named: Vec<&str> = outside.iter().take(NAMED).map(String::as_str).collect();
            tracing::warn!(
                addresses = outside.len(),
                "not within --mesh-range, so that pods dial them past the mesh: {}",
                named.join(", ")
            );
        }
        self.outside = outside;
    }

    /// Serves those that have waited long enough, and tells the holder what there was no room for.
    pub(super) fn look(&mut self, mesh: &Mesh, proxy: &Proxy) {
        if self.is_untold || self.pods.values().any(|pod| pod.listeners.is_some()) {
            self.follow(mesh, proxy);
        }
    }

    /// Nothing new comes of it: what waits is served, then its listeners are closed.
    fn released(&mut self, id: PodId, proxy: &Proxy) {
        let Some(pod) = self.pods.remove(&id) else {
            return;
        };
        tracing::info!(workload = %pod.workload, pod = %id, "a pod is released");
        let drained = listener_ids(id).map(|listener| proxy.unlisten_drained(listener, DRAIN));
        let teller = self.teller.clone();
        let was_served = pod.listeners.is_none();
        tokio::spawn(async move {
            // What it has in hand may still want sockets in its namespace: the holder keeps it so long.
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

    /// The proxy takes nothing new from now on: pods meet their fate. A holder that cannot be told sees it when the proxy
    /// has ended.
    pub(super) fn stopping(&self) {
        tell(&self.teller, Tell::Stopping);
    }

    /// Tells the proxy in which pods its workloads are reached, also those that are not served yet.
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

/// Tells the holder. Returns whether that is done with: where there is no room, it is to be told again.
fn tell(teller: &Teller, tell: Tell) -> bool {
    match teller.tell(tell) {
        Err(error) if error.kind() == io::ErrorKind::WouldBlock => false,
        Err(error) => {
            tracing::error!(%error, ?tell, "the holder cannot be told");
            true
        }
        Ok(()) => true,
    }
}
