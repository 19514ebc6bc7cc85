//! The control plane as stock Envoys see it: their own discovery service, for the workloads that have an Envoy.
//!
//! ```text
//!   Envoy ──▶ ads: who, which workload ──▶ session ──▶ catalog ◄── follow ◄── board
//!                     └── credentials: the workload's leaf, the roots
//! ```

mod ads;
mod credentials;
mod roster;
#[cfg(test)]
mod tests;

pub(super) use ads::AdsServer;
pub(super) use roster::Envoys;
