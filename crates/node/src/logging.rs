//! The process's own log.

use std::io;
use std::sync::OnceLock;

use heddle_model::printable;
use tracing::level_filters::LevelFilter;
use tracing_subscriber::filter::Targets;
use tracing_subscriber::layer::SubscriberExt;
use tracing_subscriber::util::SubscriberInitExt;
use tracing_subscriber::{Layer, Registry, fmt, registry, reload};

use crate::console::Console;
use crate::settings::{LogFormat, LogLevel};

/// Changes the level of the log that [`start`] has started.
static LEVEL: OnceLock<reload::Handle<Targets, Registry>> = OnceLock::new();
/// The beginning of the targets of our own messages: the names of our crates.
const OWN_TARGETS: &str = "heddle";

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

/// Writes only messages of this level, or more important ones, from now on. Does nothing before the log is started.
pub fn set_level(level: LogLevel) {
    if let Some(handle) = LEVEL.get() {
        // Fails only when the subscriber is gone, and it is never removed.
        let _set = handle.reload(filter(level));
    }
}

/// Messages of libraries are not limited in number, and do not name our peers: below `debug` only their errors are
/// written.
fn filter(level: LogLevel) -> Targets {
    let (own, libraries) = match level {
        LogLevel::Error => (LevelFilter::ERROR, LevelFilter::ERROR),
        LogLevel::Warn => (LevelFilter::WARN, LevelFilter::ERROR),
        LogLevel::Info => (LevelFilter::INFO, LevelFilter::ERROR),
        LogLevel::Debug => (LevelFilter::DEBUG, LevelFilter::DEBUG),
        LogLevel::Trace => (LevelFilter::TRACE, LevelFilter::TRACE),
    };
    Targets::new()
        .with_default(libraries)
        .with_target(OWN_TARGETS, own)
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
    use tracing::Level;

    use super::{filter, one_line};
    use crate::settings::LogLevel;

    #[test]
    fn warnings_of_libraries_are_written_for_debugging_only() {
        for (level, own, library) in [
            (LogLevel::Info, true, false),
            (LogLevel::Error, false, false),
            (LogLevel::Debug, true, true),
        ] {
            let filter = filter(level);
            assert_eq!(filter.would_enable("heddle_proxy::link", &Level::WARN), own);
            assert_eq!(filter.would_enable("h2::proto", &Level::WARN), library);
            assert!(filter.would_enable("h2::proto", &Level::ERROR));
        }
    }

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
