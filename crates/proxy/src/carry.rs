//! The life of a connection on a Worker: from its arrival, through the protocols that it speaks, to its end or to
//! another Worker.
//!
//! ```text
//!                    declared HTTP, or a rule on the port
//!   arrives ──┬─────────────────────────────────────────────▶ Http ──┐ upgraded
//!             │ undeclared                                     ▲     ▼
//!             ├─────────▶ Undecided ── client speaks HTTP ─────┘  Opaque ──▶ over
//!             │               └─ anything else, or server first ──▲
//!             └─ declared TCP or TLS ──▶ Undecided (connects) ────┘
//! ```
//!
//! A connection from another node arrives once that node has proven the caller ([`Greeting`]), an intercepted
//! connection once its original destination is known ([`Seeking`]).

#[cfg(test)]
mod pairs;

use std::convert::Infallible;
use std::future::{Future, poll_fn};
use std::io;
use std::net::SocketAddr;
use std::os::fd::AsFd;
use std::pin::{Pin, pin};
use std::rc::Rc;
use std::sync::Arc;

use heddle_wire::preface::Status;

use crate::collaborator::{Connection, Served, Tunnel};
use crate::detect::{Decided, Undecided};
use crate::door::Door;
use crate::entry::Entry;
use crate::env::{BandMember, Outcome, Part, PendingQuestion, WorkKey};
use crate::http2::{ArrivedExchange, InboundHttp2};
use crate::inbound::{Greeting, Met};
use crate::intake::Intake;
use crate::intercepted::{Seeking, Sought};
use crate::io::{is_reset, limit_under_way};
use crate::link::{ArrivedStream, InboundLink, handed_over};
use crate::listener::BATCH;
use crate::opaque::Flow;
use crate::parcel::{Arrival, Contents, PackedUpstream, Parcel, State};
use crate::permits::Permit;
use crate::route::Spoken;
use crate::side::Side;
use crate::upstream::Endpoint;
use crate::worker::Worker;

/// The stage of a connection.
pub(crate) enum Stage {
    /// It carries HTTP/1.1.
    Http(Box<Connection>),
    /// It carries opaque bytes.
    Opaque(Box<Flow>),
    /// The endpoint is being connected, and the side that speaks first decides the protocol.
    Undecided(Box<Undecided>),
    /// It comes from another node, which is proving the caller and saying what it calls.
    Greeting(Box<Greeting>),
    /// It was intercepted, and what its destination is has been asked.
    Seeking(Box<(Seeking, PendingQuestion)>),
    /// It carries a link from another node.
    Link(Box<InboundLink>),
    /// It carries HTTP/2 from another node.
    Http2(Box<InboundHttp2>),
    /// It moves to another Worker.
    Leave(Box<Contents>, Intake),
    Over,
}

/// Takes in a connection that was accepted or came from another thread.
pub(crate) fn receive(worker: &Rc<Worker>, arrival: Arrival) {
    match arrival {
        Arrival::Client(parcel) => admit(worker, parcel),
        Arrival::Upstream(idle) => drop(pool_idle(worker, idle)),
    }
}

/// Starts the task of a connection.
fn admit(worker: &Rc<Worker>, parcel: Parcel) {
    let Parcel { contents, permit } = parcel;
    let key = worker.gate.account(&contents.door.owner);
    // Counted from now on, not from the first run of its task: a Worker with a connection that waits for its turn is
    // not empty.
    let active = ActiveConnection::new(worker);
    if let State::New = contents.state {
        worker.stats.connections_total.inc();
    }
    let task = carry(Rc::clone(worker), active, permit, key, Box::new(contents));
    worker.gate.spawn(key, task);
}

/// Starts the driver task of a link from another node.
fn admit_link(worker: Rc<Worker>, permit: Permit, called: InboundLink) {
    let key = worker.gate.account(&called.door.owner);
    let band = worker.gate.band();
    let driver = BandMember {
        band,
        part: Part::Driver,
    };
    let env = Rc::clone(&worker.env);
    env.gate.spawn_as(key, Some(driver), async move {
        let links = Rc::clone(&worker.links);
        let arrived = || {
            while let Some(arrived) = links.take_arrived() {
                let ArrivedStream {
                    door,
                    permit,
                    stream,
                    member,
                    peer,
                } = arrived;
                let stream = (Side::from(stream), member);
                admit_stream(&worker, door, permit, stream, peer);
            }
        };
        let driver = pin!(called.run(band));
        let outcome = with_each_turn(driver, arrived).await;
        worker.gate.disband(band);
        if let Outcome::Leave(contents, to) = outcome {
            let contents = *contents;
            send_off(&worker, Parcel { contents, permit }, &to);
        }
    });
}

/// Carries a connection on which another node speaks HTTP/2.
async fn carry_http2(worker: Rc<Worker>, called: InboundHttp2) {
    let http2 = Rc::clone(&worker.http2);
    let arrived = || {
        while let Some(arrived) = http2.take_arrived() {
            let ArrivedExchange {
                door,
                permit,
                exchange,
                peer,
            } = arrived;
            admit_stream(&worker, door, permit, (Side::from(exchange), None), peer);
        }
    };
    with_each_turn(pin!(called.run()), arrived).await;
}

/// Drives a connection on which another node opens streams, and takes in the new streams after each turn. By reference:
/// a copy of the driver would take room in every link.
fn with_each_turn<'a, T>(
    mut driver: Pin<&'a mut (impl Future<Output = T> + 'a)>,
    mut arrived: impl FnMut() + 'a,
) -> impl Future<Output = T> + 'a {
    poll_fn(move |cx| {
        let driven = driver.as_mut().poll(cx);
        arrived();
        driven
    })
}

/// Starts the task of a stream from another node, which has its own door.
fn admit_stream(
    worker: &Rc<Worker>,
    door: Arc<Door>,
    permit: Permit,
    (stream, member): (Side, Option<BandMember>),
    peer: SocketAddr,
) {
    let key = worker.gate.account(&door.owner);
    let active = ActiveConnection::new(worker);
    worker.stats.connections_total.inc();
    let its = Rc::clone(worker);
    worker.gate.spawn_as(key, member, async move {
        let stage = enter(Rc::clone(&its), door, key, stream, peer);
        go_on(its, active, permit, stage).await;
    });
}

/// Puts an idle connection into the pool of its endpoint, and returns the endpoint.
fn pool_idle(worker: &Worker, idle: PackedUpstream) -> Rc<Endpoint> {
    worker.bound().expect(&idle.endpoint);
    let endpoint = worker.upstreams.endpoint(&idle.endpoint);
    // A connection that cannot be registered is closed: it was only kept to save time.
    let pod = idle.endpoint.pod();
    let is_there = pod.is_none_or(|pod| worker.pods().has(pod));
    if let Ok(side) = idle.side.unpack_as(worker.stats.class())
        && is_there
        && worker.believes(&side)
    {
        let upstream = worker.upstreams.adopt(&endpoint, side.into());
        let now = worker.clock.now_ms();
        let caller = worker.gate.account(&idle.caller);
        (worker.upstreams).give_back(&endpoint, upstream, caller, now);
    }
    endpoint
}

/// Moves a connection to another Worker. If that has no room, the connection stays here until the next order.
fn send_off(worker: &Rc<Worker>, parcel: Parcel, to: &Intake) {
    match to.put_beside(Arrival::Client(parcel), BATCH) {
        Ok(()) => {
            worker.stats.connections_moved.inc();
            to.wake();
        }
        Err(arrival) => receive(worker, arrival),
    }
}

/// Carries a connection until it ends or moves away.
///
/// The contents are boxed: they are used only once, and would take room in every connection.
async fn carry(
    worker: Rc<Worker>,
    active: ActiveConnection,
    permit: Permit,
    key: WorkKey,
    contents: Box<Contents>,
) {
    match begin(&worker, key, *contents) {
        Ok(stage) => go_on(worker, active, permit, stage).await,
        Err(error) => tracing::warn!(%error, "a connection cannot be served"),
    }
}

async fn go_on(worker: Rc<Worker>, active: ActiveConnection, permit: Permit, mut stage: Stage) {
    loop {
        stage = match stage {
            Stage::Http(connection) => connection.serve().await.into(),
            Stage::Opaque(flow) => flow.run().await.into(),
            Stage::Undecided(undecided) => undecided.decide().await.into(),
            // Boxed: it would take room in every connection.
            Stage::Greeting(greeting) => Box::pin(greeting.greet()).await.into(),
            Stage::Seeking(asked) => {
                let answered = Box::pin(Seeking::wait(*asked)).await;
                answered.map_or(Stage::Over, follow)
            }
            // A link gets a new task, since this task has room for everything that a connection may become. A link
            // counts as one connection, and each of its streams as well.
            Stage::Link(called) => return admit_link(worker, permit, *called),
            Stage::Http2(called) => return Box::pin(carry_http2(worker, *called)).await,
            Stage::Leave(contents, to) => {
                drop(active);
                let contents = *contents;
                send_off(&worker, Parcel { contents, permit }, &to);
                return;
            }
            Stage::Over => return,
        }
    }
}

fn begin(worker: &Rc<Worker>, key: WorkKey, contents: Contents) -> io::Result<Stage> {
    let Contents {
        door,
        client,
        peer,
        state,
    } = contents;
    let worker = Rc::clone(worker);
    if matches!(state, State::New) && worker.is_wary() && is_reset(client.socket().as_fd()) {
        worker.count_abandoned(1);
        return Ok(Stage::Over);
    }
    let class = worker.stats.class();
    if door.entry.caller().is_some() {
        limit_under_way(client.socket(), class);
    }
    if let State::Opaque(moving) = state {
        return Ok(moving.settle(&worker, door, client, peer)?.into());
    }
    let client = match state {
        State::New => client.unpack_new(class),
        _ => client.unpack_as(class),
    }?;
    if !worker.believes(&client) {
        // Its peer's identity was revoked while the connection moved here.
        return Ok(Stage::Over);
    }
    if let State::Link(socket) = state {
        let begun = handed_over(&worker.links, door, client, peer, &socket);
        return Ok(begun.map_or(Stage::Over, |link| Stage::Link(Box::new(link))));
    }
    let client = Side::from(client);
    Ok(match state {
        State::New => {
            // A failure costs only latency.
            let _ = client.socket().map(|socket| socket.set_nodelay(true));
            match door.entry {
                Entry::Mesh => match client.into_socket() {
                    Some(socket) => Greeting::new(worker, door, socket, peer).into(),
                    None => Stage::Over,
                },
                _ => follow(Seeking::new(worker, door, key, client, peer)),
            }
        }
        State::Undecided(waiting) => {
            let undecided = Undecided::new(worker, door, key, client, peer);
            undecided.listening().resumed(*waiting).into()
        }
        State::Http {
            served,
            since,
            upstream,
        } => {
            let last = upstream.map(|idle| pool_idle(&worker, idle));
            let connection = Connection::new(worker, door, key, client, peer);
            connection.resumed(served, since, last).into()
        }
        State::Link(_) | State::Opaque(_) => unreachable!("it was settled before"),
    })
}

/// The next stage of a connection that was just accepted, or whose question was answered.
fn follow(seeking: Seeking) -> Stage {
    match seeking.look() {
        Sought::Found(seeking) => {
            let Seeking {
                worker,
                door,
                key,
                client,
                peer,
                ..
            } = seeking;
            enter(worker, door, key, client, peer)
        }
        Sought::Asked(seeking, question) => Stage::Seeking(Box::new((seeking, question))),
        Sought::Nowhere => Stage::Over,
    }
}

/// The first stage of a connection whose destination is known.
pub(crate) fn enter(
    worker: Rc<Worker>,
    door: Arc<Door>,
    key: WorkKey,
    mut client: Side,
    peer: SocketAddr,
) -> Stage {
    // No node forwards connections of another node, except in one test.
    #[cfg(test)]
    let door = pairs::relayed(door);
    match worker.bound().snapshot.spoken(&door) {
        Spoken::Http => {
            if let Some(inbound) = door.inbound() {
                inbound.answer(&worker, &mut client, Status::Joined);
            }
            Connection::new(worker, door, key, client, peer).into()
        }
        Spoken::Opaque => Undecided::new(worker, door, key, client, peer).into(),
        Spoken::Unknown => {
            let undecided = Undecided::new(worker, door, key, client, peer);
            undecided.listening().into()
        }
    }
}

impl From<Greeting> for Stage {
    fn from(greeting: Greeting) -> Self {
        Stage::Greeting(Box::new(greeting))
    }
}

impl<N: Into<Stage>> From<Outcome<N>> for Stage {
    fn from(outcome: Outcome<N>) -> Self {
        match outcome {
            Outcome::Over => Stage::Over,
            Outcome::Leave(contents, to) => Stage::Leave(contents, to),
            Outcome::Next(next) => next.into(),
        }
    }
}

impl From<Infallible> for Stage {
    fn from(never: Infallible) -> Self {
        match never {}
    }
}

impl From<Met> for Stage {
    fn from(met: Met) -> Self {
        match met {
            Met::Connection {
                worker,
                door,
                side,
                peer,
            } => {
                let key = worker.gate.account(&door.owner);
                enter(worker, door, key, *side, peer)
            }
            Met::Link(called) => Stage::Link(called),
            Met::Http2(called) => Stage::Http2(called),
        }
    }
}

impl From<Decided> for Stage {
    fn from(decided: Decided) -> Self {
        match decided {
            Decided::Http(connection) => Stage::Http(connection),
            Decided::Opaque(flow) => Stage::Opaque(flow),
        }
    }
}

impl From<Served> for Stage {
    fn from(served: Served) -> Self {
        match served {
            Served::Upgraded(flow) => Stage::Opaque(flow),
            Served::Tunnel(Tunnel {
                worker,
                door,
                key,
                client,
                peer,
            }) => enter(worker, door, key, *client, peer),
        }
    }
}

impl From<Connection> for Stage {
    fn from(connection: Connection) -> Self {
        Stage::Http(Box::new(connection))
    }
}

impl From<Undecided> for Stage {
    fn from(undecided: Undecided) -> Self {
        Stage::Undecided(Box::new(undecided))
    }
}

impl From<Flow> for Stage {
    fn from(flow: Flow) -> Self {
        Stage::Opaque(Box::new(flow))
    }
}

/// Counts a client connection as active while this Worker carries it.
struct ActiveConnection(Rc<Worker>);

impl ActiveConnection {
    fn new(worker: &Rc<Worker>) -> Self {
        worker.stats.connections_active.inc();
        ActiveConnection(Rc::clone(worker))
    }
}

impl Drop for ActiveConnection {
    fn drop(&mut self) {
        self.0.stats.connections_active.dec();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn size<F>(
        _: impl FnOnce(Rc<Worker>, ActiveConnection, Permit, WorkKey, Box<Contents>) -> F,
    ) -> usize {
        size_of::<F>()
    }

    /// Every idle connection holds one of these futures, so it must not grow unnoticed.
    #[test]
    fn a_connection_costs_little() {
        let bytes = size(carry);
        assert!(
            bytes <= 2048,
            "the future of a connection takes {bytes} bytes"
        );
    }
}
