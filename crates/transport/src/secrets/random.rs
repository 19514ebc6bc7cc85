//! Cryptographically secure random bytes.

use std::path::Path;

use super::folder::{FolderError, FolderFault};
use crate::hex;

/// Fills the buffer with cryptographically secure random bytes.
///
/// # Errors
/// [`FolderError`] when the system's random generator fails.
pub fn fill(bytes: &mut [u8]) -> Result<(), FolderError> {
    aws_lc_rs::rand::fill(bytes)
        .map_err(|_| FolderError::new(Path::new("/dev/random"), FolderFault::Random))
}

/// 64 random bits in hexadecimal, fit for a file name.
///
/// # Errors
/// As [`fill`].
pub fn random_text() -> Result<String, FolderError> {
    let mut bytes = [0; 8];
    fill(&mut bytes)?;
    Ok(hex::encode(&bytes))
}
