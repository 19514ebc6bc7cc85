//! The access log: one JSON object per line, one line per request.
//!
//! A Worker's [`LogSink`] owns a few buffers, allocated at its first line. Records are written into the
//! current buffer; when it is full, or at the Worker's next sweep, it goes to the writer thread over
//! a bounded channel and comes back empty over another. A slow disk or a full pipe therefore costs
//! log lines, counted in `heddle_access_log_dropped_total`, but never time or memory of a request.
//!
//! ```text
//!            full ──► written ──► empty
//!  sink ◄──────────────────────────┘       no empty buffer left: drop the line, count it
//! ```

mod chunk;
mod clock;
mod json;
mod record;
mod sink;
mod writer;

#[cfg(test)]
mod tests;

pub use record::{OPEN, Record};
pub use sink::LogSink;
pub use writer::{AccessLog, Target};
