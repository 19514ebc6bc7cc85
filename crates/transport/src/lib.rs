//! Identities of mesh peers, verification of their certificates, and TLS sessions without I/O.
//!
//! ```text
//!   Leaf ──┐                      ┌─▶ Session ◀─▶ bytes of a socket (its owner moves them)
//!   Leaf ──┼─▶ Identities ────────┤      │
//!   Trust ─┤   (a snapshot)       │      └─▶ Peer: SPIFFE id, serial, until when
//!   Clock ─┘                      └─▶ check(Peer), whenever Trust has changed
//! ```
//!
//! A [`Leaf`] is a certificate that proves an identity, with its private key. [`Trust`] decides which peers are
//! trusted: those with a certificate under one of its roots, unless the deny-list names them. [`Identities`] combines
//! both into what a node needs to act as client and as server for any of its workloads; it is immutable, shared between
//! threads, and replaced as a whole when a part changes. A [`Session`] is one TLS 1.3 connection (RFC 8446) between two
//! nodes, as a state machine: ciphertext in, plaintext out, and the reverse. The `tls` module below it knows nothing of
//! identities and nodes. [`secrets`] keeps keys on disk and reads join tokens.

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
