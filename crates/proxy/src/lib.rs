//! The data plane: listeners, workers, collaborators, routes, balancing and pools.
//!
//! The modules, in the order in which a request passes through them:
//!
//! | module | what happens there |
//! |---|---|
//! | [`listener`](Entry) | accepts a connection; its socket determines the calling workload and the called port |
//! | `worker` | gives each task that is ready its turn |
//! | `collaborator` | reads, prepares, forwards and answers the request |
//! | `route` | finds the rule and the backend |
//! | `balance` | chooses the endpoint |
//! | `authorize` | decides whether the caller may call it |
//! | `connect`, `upstream` | provide the connection to the endpoint |
//!
//! The rest of the process uses [`Proxy`] to start the data plane, to pass it listeners and configuration, and to stop
//! it. This crate does not know where the configuration comes from.

mod accesses;
mod authorize;
mod balance;
mod carry;
mod clock;
mod collaborator;
mod connect;
mod detect;
mod dial;
mod door;
mod entry;
mod env;
mod failure;
mod handshake;
mod heap;
mod http2;
mod inbound;
mod intake;
mod intercepted;
mod io;
mod link;
mod listener;
mod mailbox;
mod manager;
mod opaque;
mod pace;
mod parcel;
mod peers;
mod permits;
mod place;
mod proxy;
mod pump;
mod questions;
mod rooms;
mod route;
mod settings;
mod side;
mod sync;
#[cfg(test)]
mod testing;
mod traffic;
mod upstream;
mod wait_queue;
mod worker;

pub use accesses::{Access, AccessSink};
pub use entry::{Direct, Entry, Inbound};
pub use env::{MAX_HEAD_BYTES, MAX_HEAD_FIELDS};
pub use failure::{Blame, Failure, Reason, Retry};
pub use heap::{free_kept_blocks, give_back_heap, return_large_blocks, use_one_heap};
pub use heddle_transport::Protocol;
#[cfg(feature = "fuzzing")]
#[doc(hidden)]
pub use http2::fuzzing;
pub use peers::{Peer, PeerFailure, PeerStatus};
pub use proxy::{Drained, Observer, Proxy, ProxyStatus, WorkerStatus};
pub use questions::{Asker, Questions, Ticket};
pub use settings::{
    Bounds, Elasticity, Network, NodeAddress, OriginalDestination, Settings, Timeouts,
};
