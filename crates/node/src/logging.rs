//! The process's own log.

use std::io;
use std::sync::OnceLock;

use heddle_model::printable;
use tracing::level_filters::LevelFilter;
use tracing_subscriber::layer::SubscriberExt;
use tracing_subscriber::util::SubscriberInitExt;
use tracing_subscriber::{Layer, Registry, fmt, registry, reload};

use crate::console::Console;
use crate::settings::{LogFormat, LogLevel};

/// Changes the level of the log that [`start`] has started.
static LEVEL: OnceLock<reload::Handle<LevelFilter, Registry>> = OnceLock::new();

/// Writes all log messages to `console` from now on.
///
/// # Errors
/// When the log was started before.
pub(crate) fn start(console: Console, level: LogLevel, format: LogFormat) -> io::Result<()> {
    let (filter, handle) = reload::Layer::new(filter(level));
    let lines = fmt::layer().with_ansi(false).with_writer(Writer(console));
    let lines = match format {
        LogFormat::Text => lines.with_target(false).boxed(),
        LogFormat::Json => lines.json().flatten_event(true).boxed(),
    };
    let started = registry().with(filter).with(lines).try_init();
    started.map_err(io::Error::other)?;
    let _first = LEVEL.set(handle);
    Ok(())
}

/// Writes only messages of this level, or more important ones, from now on. Does nothing before [`start`].
pub fn set_level(level: LogLevel) {
    if let Some(handle) = LEVEL.get() {
        // Fails only when the subscriber is gone, and it is never removed.
        let _set = handle.reload(filter(level));
    }
}

fn filter(level: LogLevel) -> LevelFilter {
    match level {
        LogLevel::Error => LevelFilter::ERROR,
        LogLevel::Warn => LevelFilter::WARN,
        LogLevel::Info => LevelFilter::INFO,
        LogLevel::Debug => LevelFilter::DEBUG,
        LogLevel::Trace => LevelFilter::TRACE,
    }
}

struct Writer(Console);

impl<'a> fmt::MakeWriter<'a> for Writer {
    type Writer = LogEntry<'a>;

    fn make_writer(&'a self) -> LogEntry<'a> {
        LogEntry(&self.0)
    }
}

/// Writes one log entry. The formatter writes each entry with one call, and it becomes one line whatever its fields
/// hold: text from outside can neither forge another line nor send control characters to a terminal.
struct LogEntry<'a>(&'a Console);

impl io::Write for LogEntry<'_> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0.line(one_line(bytes));
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

fn one_line(entry: &[u8]) -> Vec<u8> {
    let entry = String::from_utf8_lossy(entry);
    let mut line = printable(entry.strip_suffix('\n').unwrap_or(&entry)).into_owned();
    line.push('\n');
    line.into_bytes()
}

#[cfg(test)]
mod tests {
    use super::one_line;

    #[test]
    fn an_entry_is_one_line_whatever_it_holds() {
        for (entry, line) in [
            ("INFO serving\n", "INFO serving\n"),
            ("INFO a=x\nERROR forged\n", "INFO a=x\\nERROR forged\n"),
            ("\u{1b}[2J\u{7}\r\n", "\\u{1b}[2J\\u{7}\\r\n"),
            ("", "\n"),
        ] {
            assert_eq!(one_line(entry.as_bytes()), line.as_bytes());
        }
    }
}
