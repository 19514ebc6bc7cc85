//! Metrics and the access log.
//!
//! A Worker counts and times every request, so the types on its path have a single writer: a
//! [`Counter`] is a relaxed load and a relaxed store (no locked instruction), a [`Histogram`]
//! finds its bucket from the bit length of the value, an access-log line is written into a buffer
//! that the [`LogSink`] already holds. Nothing on that path allocates, locks or waits.
//!
//! Everything expensive happens elsewhere: a Worker asks the [`Registry`] for a series once per label
//! set and keeps it; rendering sums the Workers' series on the control thread; a dedicated thread
//! writes the log, and when it cannot keep up, lines are dropped and counted.
//!
//! ```text
//! Worker ── HttpSeries, WorkerStats ──► Registry ─ snapshot ─► /metrics
//!        └─ LogSink ── full buffers ──► writer thread ──► file or standard output
//!                  ◄── empty buffers ──
//! ```
//!
//! The exposition is OpenMetrics text ([`exposition`]). `prometheus-client` only encodes it; the
//! values stay here, because they are summed over Workers at the moment of rendering.

mod access_log;
pub mod exposition;
pub mod families;
mod histogram;
mod http;
mod labels;
pub mod process;
mod registry;
mod seldom;
mod status;
mod tcp;
mod value;
mod worker;

pub use access_log::{AccessLog, LogSink, OPEN, Record, Target};
pub use histogram::{Histogram, latency_bounds_us};
pub use http::{HttpLabels, HttpSeries};
pub use labels::{Reporter, Tls, TrafficLabels};
pub use registry::{Collapse, Detail, Registry, SeriesBounds, Snapshot};
pub use seldom::Seldom;
pub use tcp::TcpSeries;
pub use value::{Counter, Gauge};
pub use worker::{ManagerStats, NodeBytes, NodeProtocol, ReasonCounters, WorkerStats};
