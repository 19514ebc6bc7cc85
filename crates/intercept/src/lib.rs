//! How traffic of unsuspecting pods reaches the proxy.
//!
//! A *pod* is a network namespace whose programs do not know of the mesh. What they dial is steered to
//! listeners inside their namespace, and so is what arrives for them; the proxy accepts from these. All
//! that needs privileges is done by a process of its own, the *holder*, which outlives the proxy.
//!
//! ```text
//!             enrol, release                        the holder
//!   operator ───────────────▶ requests ─▶ pods ─┬─▶ hooks: BPF or nft, in the kernel
//!                                               ├─▶ listeners and sockets, in the pod's namespace
//!                                               └─▶ channel ═══ descriptors ═══▶ client ─▶ the proxy
//! ```
//!
//! | module | what it is |
//! |---|---|
//! | [`channel`] | what holder and proxy say to each other, descriptors included |
//! | [`client`] | the proxy's end of it |
//! | [`holder`] | who holds on to it all |
//! | `dials` | those of a pod that get no answer |
//! | [`hooks`] | what the kernel is told of pods |
//! | [`namespace`] | network namespaces |
//! | [`probe`] | what this machine offers |
//! | [`request`] | what operators ask of the holder |
//! | [`routes`] | how replies to clients' addresses come back to the proxy |
//! | [`sockopt`] | options of sockets that no crate knows |

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
pub use exclude::{Cidr, Exclude, MAX_EXCLUDED, PortRange};
pub use original::original_destination;
pub use pod::{Family, Fate, INBOUND_PORT, OUTBOUND_PORT, PodId};
pub use source::{dummy_address, is_of_another_host, node_address};
