//! The bounds that the protocol names. Both sides hold to them.

/// Longest message with a certificate request in it, in bytes.
pub const MAX_REQUEST_BYTES: usize = 16 * 1024;
/// Longest answer with a certificate in it, in bytes: four in a chain and two roots, and their lengths.
pub const MAX_CERTIFICATE_RESPONSE_BYTES: usize = 128 * 1024;
/// Longest message about what to trust, in bytes.
pub const MAX_TRUST_BYTES: usize = 8 * 1024 * 1024;
/// Longest part of a mesh that a node is sent, in bytes.
pub const MAX_MESH_BYTES: usize = 64 * 1024 * 1024;
/// Longest certificate, in bytes.
pub const MAX_CERTIFICATE_BYTES: usize = 16 * 1024;
/// Certificates of a chain, without the root.
pub const MAX_CHAIN: usize = 4;
/// Roots that are trusted at once.
pub const MAX_ROOTS: usize = 2;
/// Entries of a deny-list.
pub const MAX_DENIED: usize = 10_000;
/// Longest epoch, in bytes.
pub const MAX_EPOCH_BYTES: usize = 64;
