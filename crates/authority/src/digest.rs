//! Digests.

use aws_lc_rs::digest;

/// The SHA-256 digest (FIPS 180-4) of all parts, one behind the other.
pub fn sha256(parts: &[&[u8]]) -> [u8; 32] {
    let mut context = digest::Context::new(&digest::SHA256);
    for part in parts {
        context.update(part);
    }
    let mut sum = [0; 32];
    sum.copy_from_slice(context.finish().as_ref());
    sum
}
