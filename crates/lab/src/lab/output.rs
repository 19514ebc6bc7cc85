//! Output of commands.

use std::io::{self, Write};

use anyhow::Context;

/// Prints a result. A reader that closes the pipe early (`heddle-lab list | grep -q …`) is not an error.
///
/// # Errors
/// Standard output cannot be written to, for instance because its disk is full.
pub(super) fn print(text: &str) -> anyhow::Result<()> {
    let mut out = io::stdout().lock();
    match out.write_all(text.as_bytes()).and_then(|()| out.flush()) {
        Err(error) if error.kind() != io::ErrorKind::BrokenPipe => {
            Err(error).context("cannot write to standard output")
        }
        _ => Ok(()),
    }
}
