//! The process's own log.

use std::io;

use tracing::Level;
use tracing_subscriber::fmt;

use crate::console::Console;
use crate::settings::{LogFormat, LogLevel};

/// Sends everything that is traced from now on to `console`.
///
/// # Errors
/// When the process has a log already.
pub(crate) fn start(console: Console, level: LogLevel, format: LogFormat) -> io::Result<()> {
    let level = match level {
        LogLevel::Error => Level::ERROR,
        LogLevel::Warn => Level::WARN,
        LogLevel::Info => Level::INFO,
        LogLevel::Debug => Level::DEBUG,
        LogLevel::Trace => Level::TRACE,
    };
    let subscriber = fmt()
        .with_max_level(level)
        .with_ansi(false)
        .with_writer(Writer(console));
    let started = match format {
        LogFormat::Text => subscriber.with_target(false).try_init(),
        LogFormat::Json => subscriber.json().flatten_event(true).try_init(),
    };
    started.map_err(io::Error::other)
}

struct Writer(Console);

impl<'a> fmt::MakeWriter<'a> for Writer {
    type Writer = &'a Console;

    fn make_writer(&'a self) -> &'a Console {
        &self.0
    }
}
