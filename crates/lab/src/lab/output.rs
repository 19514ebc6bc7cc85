//! What commands say.

use std::io::{self, Write};

use anyhow::Context;

/// Prints a result. That the reader went away (`heddle-lab list | grep -q …`) is no failure.
///
/// # Errors
/// Standard output cannot be written to: its disk is full, for instance.
pub(super) fn print(text: &str) -> anyhow::Result<()> {
    let mut out = io::stdout().lock();
    match out.write_all(text.as_bytes()).and_then(|()| out.flush()) {
        Err(error) if error.kind() != io::ErrorKind::BrokenPipe => {
            Err(error).context("cannot write to standard output")
        }
        _ => Ok(()),
    }
}
