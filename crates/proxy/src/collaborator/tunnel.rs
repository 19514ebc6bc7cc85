//! Tunnels: what follows a CONNECT to a gateway is carried as bytes, to the endpoint of a Service's port, like a connection
//! that was accepted for that port (RFC 9110 section 9.3.6).
//!
//! The answer does not wait for the endpoint: a server that cannot be reached, or that policies do not allow, resets the
//! caller's connection, as it does without a gateway.

use std::net::SocketAddr;
use std::rc::Rc;
use std::sync::Arc;

use super::exchange::Exchange;
use super::{After, Connection};
use crate::door::Door;
use crate::entry::{Entry, Forwarded};
use crate::env::WorkKey;
use crate::failure::Reason;
use crate::opaque::Flow;
use crate::side::Side;
use crate::worker::Worker;

/// What a connection becomes that carries no more requests.
pub(crate) enum Served {
    Upgraded(Box<Flow>),
    Tunnel(Tunnel),
}

/// A client's connection on the way to a tunnel's destination.
pub(crate) struct Tunnel {
    pub(crate) worker: Rc<Worker>,
    /// The door that leads there.
    pub(crate) door: Arc<Door>,
    pub(crate) key: WorkKey,
    pub(crate) client: Box<Side>,
    pub(crate) peer: SocketAddr,
}

impl Connection {
    /// Tells the client that its tunnel begins.
    pub(super) async fn begin_tunnel(&mut self, exchange: &mut Exchange) -> After {
        let Some(door) = self.tunnel_door(exchange) else {
            return self.fail(exchange, Reason::ServiceGone.into()).await;
        };
        match self.accept_tunnel(exchange).await {
            true => After::Tunnel(door),
            false => After::Cut,
        }
    }

    fn tunnel_door(&self, exchange: &Exchange) -> Option<Arc<Door>> {
        let forwarded = self.door.forwarded()?;
        let decision = &exchange.decision;
        let port = decision.bound.snapshot.port(decision.port?);
        let entry = Entry::Forwarded(Forwarded {
            to: Some(port.name.clone()?),
            ..forwarded.clone()
        });
        Some(self.door.leading(entry))
    }

    pub(super) fn into_tunnel(self, door: Arc<Door>) -> Tunnel {
        Tunnel {
            worker: self.worker,
            door,
            key: self.key,
            client: Box::new(self.client),
            peer: self.address,
        }
    }
}
