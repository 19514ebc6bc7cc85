//! Messages packed into `Any`, and their versions.

use aws_lc_rs::digest::{SHA256, digest};
use bytes::Bytes;
use envoy_types::pb::google::protobuf::Any;
use prost::{Message, Name};

/// A message packed into an `Any` (`google/protobuf/any.proto`).
///
/// A message with a map of two entries or more must not be packed with it: the types of Envoy have maps without an order, so
/// equal messages would have different bytes, and different versions.
pub fn pack<M: Message + Name>(message: &M) -> Any {
    Any {
        type_url: M::type_url(),
        value: message.encode_to_vec(),
    }
}

/// A resource as it is sent: an encoded `Any`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Packed {
    /// The first 64 bits of the SHA-256 of the bytes. Equal after a restart of the control plane, so that an Envoy that
    /// connects again is sent only what differs.
    pub version: u64,
    /// The encoded `Any`, shared by all Envoys that get it.
    pub content: Bytes,
}

impl Packed {
    /// A message as a resource, with the condition of [`pack`].
    pub fn new<M: Message + Name>(message: &M) -> Self {
        Self::of(&pack(message))
    }

    /// What is packed already.
    pub fn of(any: &Any) -> Self {
        let content = Bytes::from(any.encode_to_vec());
        let hash = digest(&SHA256, &content);
        let first = hash.as_ref().first_chunk();
        Packed {
            version: first.map_or(0, |first| u64::from_be_bytes(*first)),
            content,
        }
    }
}
