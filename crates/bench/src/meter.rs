//! Bytes between two proxies: below TLS, as the first of them counts them, and on the sockets, as the
//! kernel does.

use std::net::SocketAddr;
use std::ops::Sub;
use std::os::unix::net::UnixStream;
use std::path::PathBuf;
use std::process::Command;
use std::time::Duration;

use anyhow::Context;

use super::ask;

/// The timeout for a proxy's answer.
const PATIENCE: Duration = Duration::from_secs(5);
/// Maximum size of a page, in bytes.
const MAX_PAGE: u64 = 16 << 20;

/// Where the counters of a proxy can be read.
#[derive(Debug, Clone)]
pub(super) enum Meter {
    /// A Heddle's admin socket.
    Heddle(PathBuf),
    /// An Envoy's admin address.
    Envoy(SocketAddr),
}

/// Bytes in both directions, as the calling side sees them.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) struct Moved {
    pub(super) sent: u64,
    pub(super) received: u64,
}

/// Traffic of connections, all of them together.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) struct OnSockets {
    pub(super) moved: Moved,
    /// TCP segments in both directions, those without data included.
    pub(super) segments: u64,
    pub(super) connections: usize,
}

impl Moved {
    /// Both directions together.
    pub(super) fn total(self) -> u64 {
        self.sent + self.received
    }
}

impl Sub for Moved {
    type Output = Moved;
    fn sub(self, before: Moved) -> Moved {
        Moved {
            sent: self.sent.saturating_sub(before.sent),
            received: self.received.saturating_sub(before.received),
        }
    }
}

impl Meter {
    /// The bytes below TLS so far. `None`: the proxy does not count them.
    ///
    /// # Errors
    /// When the proxy does not answer.
    pub(super) fn read(&self) -> anyhow::Result<Option<Moved>> {
        match self {
            Meter::Heddle(socket) => {
                let stream = UnixStream::connect(socket)?;
                stream.set_read_timeout(Some(PATIENCE))?;
                Ok(of_heddle(&ask::page(stream, "/metrics", MAX_PAGE)?))
            }
            Meter::Envoy(admin) => {
                let page = ask::get(*admin, "/stats?filter=upstream_cx_.x_bytes_total")?;
                Ok(of_envoy(&page))
            }
        }
    }
}

/// The traffic so far of the connections of this network namespace to an address, as far as they are still established.
///
/// # Errors
/// When `ss` cannot be run.
pub(super) fn on_sockets(to: SocketAddr) -> anyhow::Result<OnSockets> {
    let output = Command::new("ss")
        .args(["--tcp", "--info", "--numeric", "--no-header", "--oneline"])
        .args(["state", "established", "dst", &to.to_string()])
        .output()
        .context("ss")?;
    let said = String::from_utf8_lossy(&output.stderr);
    anyhow::ensure!(output.status.success(), "ss: {}", said.trim());
    Ok(of_ss(&String::from_utf8_lossy(&output.stdout)))
}

/// The sum over workers and protocols; `None` if there is no such counter.
fn of_heddle(metrics: &str) -> Option<Moved> {
    let of = |direction: &str| {
        let label = format!("direction=\"{direction}\"");
        let lines = metrics.lines();
        let mut ours = lines
            .filter(|line| line.starts_with("heddle_node_bytes_total{") && line.contains(&label))
            .peekable();
        ours.peek()?;
        Some(ours.filter_map(|line| count(line, ' ')).sum())
    };
    Some(Moved {
        sent: of("sent")?,
        received: of("received")?,
    })
}

/// The sum over clusters: all clusters of a pair's first Envoy lead to the second one.
fn of_envoy(stats: &str) -> Option<Moved> {
    let of = |name: &str| {
        let lines = stats.lines();
        let mut ours = lines
            .filter(|line| line.starts_with("cluster.") && line.contains(name))
            .peekable();
        ours.peek()?;
        Some(ours.filter_map(|line| count(line, ' ')).sum())
    };
    Some(Moved {
        sent: of("upstream_cx_tx_bytes_total")?,
        received: of("upstream_cx_rx_bytes_total")?,
    })
}

fn of_ss(lines: &str) -> OnSockets {
    let mut all = OnSockets::default();
    for line in lines.lines().filter(|line| !line.trim().is_empty()) {
        let field = |name: &str| {
            let mut words = line.split_ascii_whitespace();
            let found = words.find_map(|word| word.strip_prefix(name));
            found
                .and_then(|digits| digits.parse::<u64>().ok())
                .unwrap_or(0)
        };
        all.connections += 1;
        all.moved.sent += field("bytes_sent:");
        all.moved.received += field("bytes_received:");
        all.segments += field("segs_out:") + field("segs_in:");
    }
    all
}

/// The number behind the last separator.
fn count(line: &str, separator: char) -> Option<u64> {
    line.rsplit(separator).next()?.trim().parse().ok()
}

#[cfg(test)]
mod tests;
