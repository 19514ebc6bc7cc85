//! The limits of the protocol. Both sides enforce them.

/// Limit on a message with a certificate request, in bytes.
pub const MAX_REQUEST_BYTES: usize = 16 * 1024;
/// Limit on an answer with a certificate, in bytes: a chain of four, two roots, and their lengths.
pub const MAX_CERTIFICATE_RESPONSE_BYTES: usize = 128 * 1024;
/// Limit on a message with a trust bundle and a deny-list, in bytes.
pub const MAX_TRUST_BYTES: usize = 8 * 1024 * 1024;
/// Limit on the accesses of one report.
pub const MAX_ACCESSES: usize = 1_024;
/// Limit on a report of accesses, in bytes.
pub const MAX_ACCESS_REPORT_BYTES: usize = 512 * 1024;
/// Limit on a node's message about resources, in bytes.
pub const MAX_DISCOVERY_REQUEST_BYTES: usize = 1024 * 1024;
/// Limit on an answer with resources, in bytes.
pub const MAX_DISCOVERY_RESPONSE_BYTES: usize = 4 * 1024 * 1024;
/// Limit on a node's part of the mesh, in bytes of its resources and their names.
pub const MAX_MESH_BYTES: usize = 64 * 1024 * 1024;
/// Limit on one certificate, in bytes.
pub const MAX_CERTIFICATE_BYTES: usize = 16 * 1024;
/// Limit on the certificates of a chain, without the root.
pub const MAX_CHAIN: usize = 4;
/// Limit on the roots of a trust bundle.
pub const MAX_ROOTS: usize = 2;
/// Limit on the entries of a deny-list.
pub const MAX_DENIED: usize = 10_000;
/// Limit on an epoch, in bytes.
pub const MAX_EPOCH_BYTES: usize = 64;
