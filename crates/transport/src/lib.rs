//! Who is at the other end: identities, their verification, and TLS sessions without I/O.
//!
//! ```text
//!   Leaf ──┐                      ┌─▶ Session ◀─▶ bytes of a socket (its owner moves them)
//!   Leaf ──┼─▶ Identities ────────┤      │
//!   Trust ─┤   (a snapshot)       │      └─▶ Peer: SPIFFE id, serial, until when
//!   Clock ─┘                      └─▶ recheck(Peer), whenever Trust has changed
//! ```
//!
//! A [`Leaf`] is a certificate that proves an identity, with its key. [`Trust`] says which peers to believe:
//! one or two roots, less what is on the deny-list. [`Identities`] puts them together into what
//! a node needs to call and to be called as any of its workloads; it is built whole, shared, and
//! replaced when anything in it changes. A [`Session`] is one TLS 1.3 connection between two nodes
//! (RFC 8446), as a state machine: ciphertext in, plaintext out, and the other way round. The `tls` module under it knows
//! nothing of identities and nodes. [`secrets`] are how keys are kept on the disk, and what a node joins with.

mod clock;
#[cfg(feature = "control")]
pub mod control;
pub mod hex;
mod identities;
mod leaf;
mod protocol;
mod refusal;
mod resumption;
pub mod secrets;
mod session;
mod suites;
mod tickets;
mod tls;
mod trust;
mod verify;

#[cfg(any(test, feature = "fixture"))]
pub mod fixture;

pub use clock::{Clock, FloorFile};
pub use identities::{Identities, NoIdentity};
pub use leaf::{Leaf, LeafError, Peer};
pub use protocol::Protocol;
pub use refusal::Refusal;
pub use session::{Received, Session};
pub use tls::{MAX_PLAINTEXT, MAX_SEALED, TlsError};
pub use trust::{Denied, RootId, Trust, TrustError};
