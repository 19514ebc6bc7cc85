//! The native gRPC protocol between nodes and the control plane.
//!
//! `proto/heddle/v1` defines the protocol: the meaning and the size limit of each field. [`proto`] is generated from
//! it; a control plane implements what is in [`server`]. A node uses a [`Client`] over a connection that its caller
//! has opened and authenticated. The client turns messages into checked values: a value out of bounds is an error and
//! never repaired. [`delta`] has the machines that exchange resources, [`resources`] says what these are, and [`NodeMesh`] is
//! what a node has of them.

mod client;
mod codec;
pub mod delta;
mod limits;
mod message;
mod node_mesh;
pub mod resources;
mod trust;

pub use client::{Client, ClientError, Discovery, Registration, TrustWatch};
pub use limits::{
    MAX_ACCESS_REPORT_BYTES, MAX_ACCESSES, MAX_CERTIFICATE_BYTES, MAX_CERTIFICATE_RESPONSE_BYTES,
    MAX_CHAIN, MAX_DENIED, MAX_DISCOVERY_REQUEST_BYTES, MAX_DISCOVERY_RESPONSE_BYTES,
    MAX_EPOCH_BYTES, MAX_MESH_BYTES, MAX_REQUEST_BYTES, MAX_ROOTS, MAX_TRUST_BYTES,
};
pub use message::discovery_request;
pub use node_mesh::{NodeMesh, Update};
pub use trust::{Bundle, Certificate, Denied, DenyEntry, DenyList, Invalid, Joined, TrustUpdate};

/// Code generated from `proto/heddle/v1`.
pub mod proto {
    #![allow(
        missing_docs,
        unreachable_pub,
        clippy::all,
        clippy::semicolon_if_nothing_returned
    )]
    tonic::include_proto!("heddle.v1");

    impl std::fmt::Debug for JoinRequest {
        /// Omits the token's secret.
        fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
            f.debug_struct("JoinRequest")
                .field("node_name", &self.node_name)
                .field("token_id", &self.token_id)
                .finish_non_exhaustive()
        }
    }
}

/// The trait that a control plane implements, and the service that serves it. That of discovery is written by hand, where
/// it is served.
pub mod server {
    pub use super::proto::accesses_server::{Accesses, AccessesServer};
    pub use super::proto::authority_server::{Authority, AuthorityServer};
}
