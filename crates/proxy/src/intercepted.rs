//! Intercepted connections: determines the original destination.
//!
//! ```text
//!   Outbound ── original destination ──┬─ a Service's address ────────▶ as from a listener of that port
//!                                      ├─ an endpoint's own address ──▶ exactly there, as the port says
//!                                      ├─ a workload's, of this node ─▶ exactly there
//!                                      ├─ a workload's, of another ───▶ refused: there is no way but in the clear
//!                                      └─ unknown to the mesh ────────▶ there, as bytes, from within the pod
//!   Arriving ── own or original address ──▶ the pod's program there, for a caller that is not identified
//! ```
//!
//! This happens once, when a connection arrives, and costs two system calls and one door. The result is a door like any
//! other: the code after it does not know about interception.

use std::net::SocketAddr;
use std::os::fd::AsFd;
use std::rc::Rc;
use std::sync::Arc;

use heddle_model::{Dependency, WorkloadName};

use crate::authorize::Carried;
use crate::door::Door;
use crate::entry::{Direct, Entry, What};
use crate::failure::Reason;
use crate::parcel::Origin;
use crate::route::{Found, Missing};
use crate::side::Side;
use crate::traffic::FlowEnds;
use crate::worker::{Bound, Worker};

/// The destination in metrics and logs, if it was not found out.
const UNKNOWN: &str = "unknown";

mod seeking;

pub(crate) use seeking::{Seeking, Sought};

/// Where a connection leads.
enum Led {
    /// The door that leads there, and the client's address as it is to be shown.
    To(Arc<Door>, SocketAddr),
    /// This node does not know yet what is at that address.
    Unasked(Dependency, SocketAddr),
    /// No valid destination, which was counted, logged, and answered by a reset.
    Nowhere,
}

/// Determines the original destination of a connection that was just accepted, or whose question was answered.
fn lead(worker: &Rc<Worker>, door: Arc<Door>, client: &Side, peer: SocketAddr) -> Led {
    let led = match &door.entry {
        Entry::Outbound { caller } => outbound(worker, &door, caller, client)
            .map(|(entry, address)| (entry, seen(worker, caller, peer, address))),
        Entry::Arriving { workload } => {
            arriving(worker, &door, workload, client).map(|entry| (entry, peer))
        }
        _ => return Led::To(door, peer),
    };
    match led {
        Ok((entry, peer)) => Led::To(door.leading(entry), peer),
        Err(Nowhere::Unasked(dependency, address)) => Led::Unasked(dependency, address),
        Err(Nowhere::Because(reason, address)) => {
            lead_nowhere(worker, &door, (client, peer), reason, address);
            Led::Nowhere
        }
    }
}

/// Counts, logs and resets a connection that has no valid destination.
fn lead_nowhere(
    worker: &Rc<Worker>,
    door: &Door,
    (client, peer): (&Side, SocketAddr),
    reason: Reason,
    address: Option<SocketAddr>,
) {
    let origin = Origin {
        destination: UNKNOWN.into(),
        began: worker.clock.now(),
        attempts: 0,
        carried: Carried::Bytes,
        path: Vec::new(),
        route: None,
        authority: Vec::new(),
        is_told: false,
    };
    let ends = FlowEnds {
        upstream: address,
        ..FlowEnds::new(door, peer, None)
    };
    origin.fail(worker, reason, ends, (0, 0));
    hint(worker, door, reason, address);
    client.reset_on_close(true);
}

/// Logs now and then how a port that no Service declares could be reached: programs that negotiate ports, such as FTP,
/// otherwise see only a reset.
fn hint(worker: &Worker, door: &Door, reason: Reason, address: Option<SocketAddr>) {
    let (what, remedy) = match reason {
        Reason::PortElsewhere => (
            "a pod dials a port of a workload on another node that no Service declares, and is reset",
            "declare the port in a Service of that workload; for FTP, each port of the server's passive range in a \
             headless one",
        ),
        Reason::UnknownPort => (
            "a pod dials a Service at a port that it does not declare, and is reset",
            "declare the port; for FTP, have clients dial a headless Service that declares the server's passive range",
        ),
        _ => return,
    };
    let now = worker.clock.now();
    if let Some(address) = address
        && worker.said_of_ports.borrow_mut().may_name(reason, now)
    {
        tracing::warn!(caller = %door.source, %address, remedy, "{what}");
    }
}

/// Why a connection has no valid destination now.
enum Nowhere {
    /// With its original destination, if that is known.
    Because(Reason, Option<SocketAddr>),
    /// This node has to ask first.
    Unasked(Dependency, SocketAddr),
}

/// The address from which a pod's program calls. Its connections are redirected to a listener on its loopback, so the
/// socket shows only a loopback address, or one that the program has bound itself; others must see the pod's address.
fn seen(
    worker: &Worker,
    caller: &WorkloadName,
    peer: SocketAddr,
    destination: SocketAddr,
) -> SocketAddr {
    let bound = worker.bound();
    let addresses = &bound.snapshot.addresses;
    if addresses.is_of(peer.ip().to_canonical(), caller) {
        return peer;
    }
    let own = addresses.of(caller, destination.is_ipv4());
    let own = own.or_else(|| addresses.first_of(caller));
    own.map_or(peer, |own| SocketAddr::new(own, peer.port()))
}

/// The destination that a pod's program has dialled, and its address.
fn outbound(
    worker: &Worker,
    door: &Door,
    caller: &WorkloadName,
    client: &Side,
) -> Result<(Entry, SocketAddr), Nowhere> {
    let address =
        original(worker, client).ok_or(Nowhere::Because(Reason::DestinationUnknown, None))?;
    let nowhere = |reason| Nowhere::Because(reason, Some(address));
    // A pod that dials the listener itself would cause an endless loop.
    if address.port() == door.port && own(client).is_none_or(|own| own == address) {
        return Err(nowhere(Reason::DestinationUnknown));
    }
    let bound = worker.bound();
    let addresses = &bound.snapshot.addresses;
    if !addresses.has(caller) {
        return Err(nowhere(Reason::WorkloadUnknown));
    }
    let missing = |missing| match missing {
        Missing::Unasked(dependency) => Nowhere::Unasked(dependency, address),
        Missing::Unreadable => nowhere(Reason::DestinationUnreadable),
        Missing::Absent => nowhere(Reason::DestinationUnknown),
    };
    let mut found = bound.snapshot.at(address).map_err(&missing)?;
    // Only now it is known of a further address of a workload of another node what its first one is.
    let first = addresses.known_as(address);
    if first != address {
        found = bound.snapshot.at(first).map_err(&missing)?;
    }
    let address = first;
    let what = match found {
        Found::Service(index) => {
            let named = bound.snapshot.port(index).name.clone();
            let (service, port) = named.ok_or(nowhere(Reason::ServiceGone))?;
            let caller = Some(caller.clone());
            let entry = Entry::Service {
                caller,
                service,
                port,
            };
            return Ok((entry, address));
        }
        Found::Endpoint(index) => {
            let entry = bound.snapshot.port(index);
            let (service, port) = entry.name.clone().ok_or(nowhere(Reason::ServiceGone))?;
            What::Endpoint {
                service,
                port,
                workload: entry.workload_at(address).cloned(),
            }
        }
        Found::Workload(workload) => at_workload(&bound, workload, address).map_err(nowhere)?,
        Found::Outside => What::Outside,
        Found::NoPort => return Err(nowhere(Reason::UnknownPort)),
        Found::Elsewhere => return Err(nowhere(Reason::PortElsewhere)),
    };
    let direct = Direct {
        caller: Some(caller.clone()),
        endpoint: address,
        what,
    };
    Ok((Entry::Direct(direct), address))
}

/// The destination of a connection that has arrived at a pod.
fn arriving(
    worker: &Worker,
    door: &Door,
    workload: &WorkloadName,
    client: &Side,
) -> Result<Entry, Nowhere> {
    let own = own(client);
    // Interception by socket lookup leaves the local address unchanged; a redirected packet has the listener's port.
    let address = match own.filter(|own| own.port() != door.port) {
        Some(own) => Some(own),
        None => original(worker, client).filter(|address| address.port() != door.port),
    };
    let address = address.ok_or(Nowhere::Because(Reason::DestinationUnknown, own))?;
    let nowhere = |reason| Nowhere::Because(reason, Some(address));
    let what = at_workload(&worker.bound(), workload, address);
    Ok(Entry::Direct(Direct {
        caller: None,
        endpoint: address,
        what: what.map_err(nowhere)?,
    }))
}

/// The target at one of the addresses of a workload of this node. Services have their endpoints at the workload's first
/// address, by whichever of its addresses it is called.
fn at_workload(
    bound: &Bound,
    workload: &WorkloadName,
    address: SocketAddr,
) -> Result<What, Reason> {
    let addresses = &bound.snapshot.addresses;
    let first = addresses.first_of(workload);
    let first = SocketAddr::new(first.ok_or(Reason::WorkloadUnknown)?, address.port());
    Ok(match addresses.find(first) {
        Found::Endpoint(index)
            if bound.snapshot.port(index).workload_at(first) == Some(workload) =>
        {
            let named = bound.snapshot.port(index).name.clone();
            let (service, port) = named.ok_or(Reason::ServiceGone)?;
            What::Endpoint {
                service,
                port,
                workload: Some(workload.clone()),
            }
        }
        _ => What::Workload(workload.clone()),
    })
}

/// The original destination of a redirected connection.
fn original(worker: &Worker, client: &Side) -> Option<SocketAddr> {
    let socket = client.socket()?;
    let asked = (worker.settings.original_destination.0)(socket.as_fd());
    let known = asked.inspect_err(|error| tracing::debug!(%error, "no original destination"));
    let address = known.ok()?;
    let address = canonical(address);
    let is_one = !address.ip().is_unspecified() && !address.ip().is_multicast();
    Some(address).filter(|address| is_one && address.port() > 0)
}

/// The socket's local address. A listener may serve both address families.
fn own(client: &Side) -> Option<SocketAddr> {
    client.socket()?.local_addr().ok().map(canonical)
}

fn canonical(address: SocketAddr) -> SocketAddr {
    SocketAddr::new(address.ip().to_canonical(), address.port())
}
