//! What nodes and the control plane say to each other: the native gRPC protocol.
//!
//! The protocol itself is `proto/heddle/v1`: what each field means and how large it may be. [`proto`] is
//! what is generated from it; [`server`] is what a control plane implements. A node uses a [`Client`],
//! which runs over one connection that its caller made and authenticated, and turns what it gets into
//! checked values: whatever is out of bounds is an error, never a guess.

mod client;
mod limits;
mod trust;

pub use client::{Client, ClientError, MeshWatch, Registration, TrustWatch};
pub use limits::{
    MAX_CERTIFICATE_BYTES, MAX_CERTIFICATE_RESPONSE_BYTES, MAX_CHAIN, MAX_DENIED, MAX_EPOCH_BYTES,
    MAX_MESH_BYTES, MAX_REQUEST_BYTES, MAX_ROOTS, MAX_TRUST_BYTES,
};
pub use trust::{Bundle, Certificate, Denied, DenyEntry, DenyList, Invalid, Joined, TrustUpdate};

/// What is generated from `proto/heddle/v1`.
pub mod proto {
    #![allow(
        missing_docs,
        unreachable_pub,
        clippy::all,
        clippy::semicolon_if_nothing_returned
    )]
    tonic::include_proto!("heddle.v1");

    impl std::fmt::Debug for JoinRequest {
        /// Without the secret.
        fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
            f.debug_struct("JoinRequest")
                .field("node_name", &self.node_name)
                .field("token_id", &self.token_id)
                .finish_non_exhaustive()
        }
    }
}

/// What a control plane implements, and what serves it.
pub mod server {
    pub use super::proto::authority_server::{Authority, AuthorityServer};
    pub use super::proto::mesh_server::{Mesh, MeshServer};
}
