//! The process's own log.

use std::io;

use heddle_model::printable;
use tracing::Level;
use tracing_subscriber::fmt;

use crate::console::Console;
use crate::settings::{LogFormat, LogLevel};

/// Writes all log messages to `console` from now on.
///
/// # Errors
/// When the log was started before.
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
