//! The machines of incremental ("delta") xDS: what a client and a server say on a stream about resources of one type.
//!
//! They have no I/O and no clock, and know nothing about what a resource is: a caller gives them the messages that
//! arrive and sends those that they return. A stream carries one machine for each type of resource.
//!
//! ```text
//!   Subscription (client)                                    Subscriber (server)
//!     want, forget ──▶ request ─── subscribe, unsubscribe ──▶ receive
//!                                  versions it has, ACK, NACK     │
//!     accept ◀──────────────────── resources, removed names ◀── respond ◀── changed (a resource of the source)
//! ```
//!
//! Source: the xDS transport protocol, <https://www.envoyproxy.io/docs/envoy/v1.36.0/api-docs/xds_protocol>, the
//! incremental variants.

mod client;
mod server;
#[cfg(test)]
mod tests;

use std::sync::Arc;

pub use client::{Held, News, Subscription};
pub use server::{Answer, Resources, Subscriber, TooMany, in_both};

/// The name of a resource. It does not depend on who asks.
pub type Name = Arc<str>;

/// The name with which a client subscribes to all resources of a type that the server chooses for it.
pub const WILDCARD: &str = "*";

/// What a client says in one message.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Request {
    /// Names that the client wants from now on. One that it wants already is sent again.
    pub subscribe: Vec<Name>,
    /// Names that it does not want any more.
    pub unsubscribe: Vec<Name>,
    /// In the first message of a stream: versions of the resources that it has from an earlier stream.
    pub initial_versions: Vec<(Name, Box<str>)>,
    /// The nonce of the response that this message answers; empty if it answers none.
    pub nonce: Box<str>,
    /// Why that response was refused (NACK); `None` if it was accepted (ACK).
    pub refused: Option<String>,
}

/// What a server says in one message.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Response<R> {
    /// Resources that are new for the client.
    pub resources: Vec<Versioned<R>>,
    /// Names of resources that do not exist, or do not exist any more.
    pub removed: Vec<Name>,
    /// Identifies this message on its stream.
    pub nonce: Box<str>,
}

/// A resource in a response.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Versioned<R> {
    /// Its name.
    pub name: Name,
    /// Its version. A client only compares versions, and repeats them when it connects again.
    pub version: Box<str>,
    /// Its content.
    pub content: R,
}
