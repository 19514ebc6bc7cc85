//! The control plane as stock Envoys see it: their own discovery service, for the workloads that have an Envoy.
//!
//! ```text
//!   Envoy ──▶ ads: who, which workload ──▶ session ──▶ catalog ◄── follow ◄── board
//!                     └── credentials: the workload's leaf, the roots
//!   gateway ──▶ als, of a node accesses: what its callers use ──▶ dependencies, on the disk ──▶ catalog
//!   lazy Envoy ──▶ lrs: what it still uses ──────┘
//! ```

mod accesses;
mod ads;
mod als;
mod credentials;
mod denied;
mod dependencies;
mod dialect;
mod learn;
mod lrs;
mod roster;

pub(super) use accesses::AccessesService;
pub(super) use ads::Ads;
pub(super) use als::Als;
pub use dependencies::{DEPENDENCIES, Used};
pub(super) use lrs::Lrs;
pub use roster::{Connected, Cost, Envoys};
