//! Steers the traffic of pods to the proxy, without their knowledge.
//!
//! A *pod* is a network namespace whose programs do not know of the mesh. Their outbound and inbound
//! connections are steered to listeners inside the namespace, from which the proxy accepts. Everything
//! that needs privileges is done by a separate process, the *holder*, which outlives the proxy.
//!
//! ```text
//!             enroll, unenroll                      the holder
//!   operator ───────────────▶ requests ─▶ pods ─┬─▶ hooks: BPF or nft, in the kernel
//!                                               ├─▶ listeners and sockets, in the pod's namespace
//!                                               └─▶ channel ═══ descriptors ═══▶ client ─▶ the proxy
//! ```
//!
//! | module | what it is |
//! |---|---|
//! | [`channel`] | messages between holder and proxy, descriptors included |
//! | [`client`] | the proxy's end of the channel |
//! | [`holder`] | the privileged process |
//! | `dials` | ends connection attempts of a pod that get no answer |
//! | [`hooks`] | BPF programs or nft rules that steer pods' connections |
//! | [`namespace`] | creates and enters network namespaces |
//! | [`probe`] | tests what this machine supports |
//! | [`request`] | requests of operators to the holder |
//! | [`routes`] | bring replies to clients' addresses back to the proxy |
//! | [`sockopt`] | socket options that no used crate offers |

pub mod cgroup;
pub mod channel;
#[cfg(feature = "client")]
pub mod client;
mod dials;
mod exclude;
#[cfg(feature = "fixture")]
pub mod fixture;
pub mod holder;
pub mod hooks;
pub mod namespace;
mod original;
mod pod;
pub mod probe;
pub mod request;
pub mod routes;
pub mod sockopt;
mod source;

#[cfg(feature = "client")]
pub use client::{Client, Event, Sockets, Tell, Teller};
pub use exclude::{Exclude, MAX_EXCLUDED, PortRange};
pub use original::original_destination;
pub use pod::{Family, Fate, INBOUND_PORT, OUTBOUND_PORT, PodId};
pub use source::{dummy_address, is_of_another_host, node_address};
