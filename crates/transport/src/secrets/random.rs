//! Random bytes.

use std::path::Path;

use super::folder::{FolderError, FolderFault};
use crate::hex;

/// Fills with bytes that cannot be guessed.
///
/// # Errors
/// [`FolderError`] when the system gives none.
pub fn fill(bytes: &mut [u8]) -> Result<(), FolderError> {
    aws_lc_rs::rand::fill(bytes)
        .map_err(|_| FolderError::new(Path::new("/dev/random"), FolderFault::Random))
}

/// 64 random bits as text that can be part of a file's name.
///
/// # Errors
/// As [`fill`].
pub fn random_text() -> Result<String, FolderError> {
    let mut bytes = [0; 8];
    fill(&mut bytes)?;
    Ok(hex::encode(&bytes))
}
