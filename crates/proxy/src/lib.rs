//! The data plane: listeners, workers, collaborators, routes, balancing and pools.
//!
//! The modules stand in the order in which a request meets them:
//!
//! | module | what happens there |
//! |---|---|
//! | [`listener`](Entry) | a connection is accepted; the socket says who calls whom |
//! | `worker` | a task becomes ready and gets its turn |
//! | `collaborator` | the request is read, prepared, forwarded and answered |
//! | `route` | which rule, which backend |
//! | `balance` | which endpoint |
//! | `authorize` | whether it may go there |
//! | `upstream` | over which connection |
//!
//! [`Proxy`] is the handle by which the rest of the process starts it, gives it listeners and
//! configuration, and ends it. Nothing here knows where the configuration came from.

mod authorize;
mod balance;
mod carry;
mod collaborator;
mod detect;
mod failure;
mod handshake;
mod http2;
mod inbound;
mod intercepted;
mod io;
mod link;
mod listener;
mod mailbox;
mod manager;
mod opaque;
mod parcel;
mod peers;
mod permits;
mod proxy;
mod pump;
mod route;
mod settings;
mod upstream;
mod worker;

pub use failure::{Blame, Failure, Reason, Retry};
pub use heddle_transport::Protocol;
pub use inbound::Inbound;
pub use intercepted::Direct;
pub use listener::Entry;
pub use manager::Elasticity;
pub use peers::{Peer, PeerFailure, PeerStatus};
pub use proxy::{Drained, Observer, Proxy, ProxyStatus, WorkerStatus};
pub use settings::{Bounds, Network, NodeAddress, OriginalDestination, Settings, Timeouts};
