//! Random bytes and digests, of one library.

use std::fmt::Write as _;
use std::path::Path;

use aws_lc_rs::digest;

use super::folder::{FolderError, FolderFault};

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

/// Bytes that cannot be guessed.
pub(super) fn fill(bytes: &mut [u8]) -> Result<(), FolderError> {
    aws_lc_rs::rand::fill(bytes)
        .map_err(|_| FolderError::new(Path::new("/dev/random"), FolderFault::Random))
}

/// A short random text for a file's name.
pub(crate) fn hex() -> Result<String, FolderError> {
    let mut bytes = [0; 8];
    fill(&mut bytes)?;
    Ok(to_hex(&bytes))
}

/// Two digits for each byte, in lower case.
pub(super) fn to_hex(bytes: &[u8]) -> String {
    let mut text = String::with_capacity(bytes.len() * 2);
    for byte in bytes {
        // Writing into a String does not fail.
        let _ = write!(text, "{byte:02x}");
    }
    text
}

/// The opposite of [`to_hex`]; upper case is taken too. `None` for any other length or character.
pub(super) fn from_hex<const N: usize>(text: &str) -> Option<[u8; N]> {
    let digits = text.as_bytes();
    if digits.len() != N * 2 {
        return None;
    }
    let digit = |byte: u8| char::from(byte).to_digit(16);
    let mut bytes = [0; N];
    for (byte, pair) in bytes.iter_mut().zip(digits.chunks_exact(2)) {
        let [high, low] = pair else { return None };
        *byte = u8::try_from(digit(*high)? * 16 + digit(*low)?).ok()?;
    }
    Some(bytes)
}
