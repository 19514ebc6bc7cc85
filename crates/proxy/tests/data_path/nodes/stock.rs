//! Stock proxies such as Envoys, whose parts are played by plain rustls: as callers of a node, and as what a node calls.

mod called;
mod calling;
mod endings;
mod forwarded;
mod gateway;

use std::net::{SocketAddr, TcpStream};
use std::sync::Arc;

use heddle_model::{AppProtocol, Mesh, Proxy};
use heddle_proxy::Protocol;
use heddle_transport::fixture::{DAY, NOW, stock};
use heddle_transport::{Denied, Leaf, Peer};
use rustls::{ClientConnection, ServerConnection, StreamOwned};

use super::pair::{Pair, id};
use crate::policy::guarded;
use crate::support::{Client, Upstream};

/// The port of the echo Service, as a stock proxy calls it.
const ECHO: &str = "80.echo.test.svc.echo.test.sa.cluster.local";

type Caller = Client<StreamOwned<ClientConnection, TcpStream>>;
type Called = Client<StreamOwned<ServerConnection, TcpStream>>;

/// The own certificate of a workload's Envoy.
fn own(pair: &Pair, name: &str) -> Arc<Leaf> {
    let authority = &pair.authority;
    authority.leaf_for(None, &id(name), NOW - DAY, NOW + DAY)
}

/// An Envoy of this workload that calls the called node by this name.
fn caller(pair: &Pair, who: &str, protocol: Protocol, sni: &str) -> Caller {
    caller_with(pair, &own(pair, who), protocol, sni)
}

fn caller_with(pair: &Pair, leaf: &Leaf, protocol: Protocol, sni: &str) -> Caller {
    caller_at(pair.mesh_address, leaf, protocol, sni)
}

/// The same of the node at this address.
fn caller_at(address: SocketAddr, leaf: &Leaf, protocol: Protocol, sni: &str) -> Caller {
    let name = sni.to_owned().try_into().unwrap();
    let session = ClientConnection::new(stock::client(leaf, &[protocol]), name).unwrap();
    let stream = Client::connect(address).stream;
    Client::over(StreamOwned::new(session, stream))
}

/// A mesh whose echo workload has an Envoy of its own.
fn with_envoy(upstream: &Upstream, protocol: AppProtocol) -> Mesh {
    let mut mesh = guarded(upstream.address, protocol);
    for workload in mesh.workloads.iter_mut() {
        if workload.name.name.as_str() == "echo" {
            workload.proxy = Proxy::Envoy { lazy: false };
        }
    }
    mesh.services[0].ports[0].endpoints[0].has_envoy = true;
    mesh
}

/// A pair whose echo workload has an Envoy of its own, which the test plays.
fn pair_with_envoy(protocol: AppProtocol) -> (Upstream, Pair) {
    let upstream = Upstream::new();
    let mesh = with_envoy(&upstream, protocol);
    let pair = Pair::of(&heddle_proxy::Settings::default(), mesh);
    (upstream, pair)
}

/// The Envoy accepts the next connection.
fn accept(pair: &Pair, upstream: &Upstream) -> Called {
    accept_with(pair, upstream, &own(pair, "echo"))
}

fn accept_with(pair: &Pair, upstream: &Upstream, leaf: &Leaf) -> Called {
    let trust = pair.trust(&[&pair.authority], Denied::default());
    let config = stock::server(leaf, trust, pair.clock(), &Protocol::STOCK);
    let session = ServerConnection::new(config).unwrap();
    Client::over(StreamOwned::new(session, upstream.accept().stream))
}

/// The certificate and the application protocol that a caller has shown.
fn shown(called: &Called) -> (Peer, &[u8]) {
    let session = &called.stream.conn;
    let peer = Peer::read(&session.peer_certificates().unwrap()[0]).unwrap();
    (peer, session.alpn_protocol().unwrap())
}
