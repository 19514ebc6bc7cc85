//! What the control plane tells stock Envoys: the model of a mesh as resources of Envoy's xDS.
//!
//! ```text
//!   Mesh ──▶ cluster, endpoints (the same for every Envoy) ──┐
//!        └─▶ routes, listener, policy (of one workload) ─────┴─▶ resources, by name and version
//! ```
//!
//! A pure mapping: no I/O and no clock. What Envoy cannot express is an error that says so, never something that is almost
//! right. Sources: Envoy's API v3 (<https://www.envoyproxy.io/docs/envoy/v1.40.0/api-v3/api>).

mod any;
pub mod bootstrap;
mod catalog;
mod cluster;
mod endpoints;
mod gateway;
mod kind;
pub mod listener;
mod names;
mod own;
mod policy;
pub mod report;
mod routes;
pub mod secret;
mod session;
mod tls;
mod values;
pub mod wire;
pub mod world;

pub use any::{Packed, pack};
pub use catalog::{Catalog, Changed, reached_by};
pub use gateway::gateways;
pub use kind::Kind;
pub use own::{Gone, Own};
pub use session::Session;
