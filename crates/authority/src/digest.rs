//! Digests.

use aws_lc_rs::digest;

/// A SHA-256 digest (FIPS 180-4).
pub(super) fn sha256(parts: &[&[u8]]) -> [u8; 32] {
    let mut context = digest::Context::new(&digest::SHA256);
    for part in parts {
        context.update(part);
    }
    let mut sum = [0; 32];
    sum.copy_from_slice(context.finish().as_ref());
    sum
}
