//! Flags that several commands share and that take precedence over the settings file.

use std::path::PathBuf;

use super::file::{LogFormat, LogLevel};
use super::given::GivenSettings;
use super::metrics::Metrics;

/// Flags of the process's own log.
#[derive(Debug, Clone, clap::Args)]
pub struct LogFlags {
    /// Least important messages on standard error [default: info]
    #[arg(long, value_name = "LEVEL")]
    log_level: Option<LogLevel>,
    /// How messages are written [default: text]
    #[arg(long, value_name = "FORMAT")]
    log_format: Option<LogFormat>,
}

/// Flags of the proxy's admin socket, metrics and access log.
#[derive(Debug, Clone, clap::Args)]
pub struct ServingFlags {
    /// The admin socket [default: heddle.sock in $XDG_RUNTIME_DIR, else in /tmp/heddle-UID; for root in /run/heddle]
    #[arg(long, value_name = "PATH")]
    socket: Option<PathBuf>,
    /// Where to serve /metrics and /ready over TCP, or `none` [default: 127.0.0.1:15020]
    #[arg(long, value_name = "ADDRESS:PORT")]
    metrics: Option<Metrics>,
    /// Write an access log, one JSON line a request, to this file or to standard output (`-`)
    #[arg(long, value_name = "PATH")]
    access_log: Option<PathBuf>,
}

impl LogFlags {
    /// Overrides the file's values by these flags.
    pub fn over(self, given: &mut GivenSettings) {
        given.flag("--log-level", "log.level", self.log_level, |to, level| {
            to.log.level = level;
        });
        given.flag("--log-format", "log.format", self.log_format, |to, form| {
            to.log.format = form;
        });
    }
}

impl ServingFlags {
    /// Overrides the file's values by these flags.
    pub fn over(self, given: &mut GivenSettings) {
        given.flag("--socket", "admin.socket", self.socket, |to, path| {
            to.admin.socket = Some(path);
        });
        given.flag("--metrics", "admin.metrics", self.metrics, |to, metrics| {
            to.admin.metrics = metrics;
        });
        let log = self.access_log;
        given.flag("--access-log", "access_log.path", log, |to, path| {
            to.access_log.path = Some(path);
        });
    }
}
