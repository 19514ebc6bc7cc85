//! The data plane: listeners, workers, collaborators, routes, balancing and pools.
//!
//! The modules stand in the order in which a request meets them:
//!
//! | module | what happens there |
//! |---|---|
//! | [`listener`](Entry) | a connection is accepted; the socket says which workload calls, and what |
//! | `worker` | a task becomes ready and gets its turn |
//! | `collaborator` | the request is read, prepared, forwarded and answered |
//! | `route` | which rule, which backend |
//! | `balance` | which endpoint |
//! | `authorize` | whether it may go there |
//! | `connect`, `upstream` | over which connection |
//!
//! [`Proxy`] is the handle by which the rest of the process starts it, gives it listeners and
//! configuration, and ends it. Nothing here knows where the configuration came from.

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
mod rooms;
mod route;
mod settings;
mod side;
mod sync;
#[cfg(test)]
mod testing;
mod traffic;
mod upstream;
mod worker;

pub use entry::{Direct, Entry, Inbound};
pub use env::{MAX_HEAD_BYTES, MAX_HEAD_FIELDS};
pub use failure::{Blame, Failure, Reason, Retry};
pub use heddle_transport::Protocol;
#[cfg(feature = "fuzzing")]
#[doc(hidden)]
pub use http2::fuzzing;
pub use manager::give_back as give_back_heap;
pub use peers::{Peer, PeerFailure, PeerStatus};
pub use proxy::{Drained, Observer, Proxy, ProxyStatus, WorkerStatus};
pub use settings::{
    Bounds, Elasticity, Network, NodeAddress, OriginalDestination, Settings, Timeouts,
};
