//! Prometheus' text exposition format, version 0.0.4
//! (<https://prometheus.io/docs/instrumenting/exposition_formats/>).

#[cfg(test)]
mod tests;

use std::fmt::Write;

/// The `Content-Type` of what [`Encoder`] writes.
pub const CONTENT_TYPE: &str = "text/plain; version=0.0.4; charset=utf-8";

/// What kind of metric a family is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// Only grows; its name ends in `_total`.
    Counter,
    /// Goes up and down.
    Gauge,
    /// Samples `_bucket`, `_sum` and `_count`.
    Histogram,
}

/// A label and its value; the value is escaped when it is written.
pub type Label<'a> = (&'static str, &'a str);

/// Writes families and their samples to a string.
///
/// All samples of a family must follow its [`Encoder::family`] at once, as the format demands.
#[derive(Debug)]
pub struct Encoder<'o> {
    out: &'o mut String,
}

impl<'o> Encoder<'o> {
    /// Appends to `out`.
    pub fn new(out: &'o mut String) -> Self {
        Encoder { out }
    }

    /// Starts a family: its `HELP` and `TYPE` lines.
    pub fn family(&mut self, name: &str, kind: Kind, help: &str) {
        self.push(&["# HELP ", name, " "]);
        for c in help.chars() {
            match c {
                '\\' => self.out.push_str("\\\\"),
                '\n' => self.out.push_str("\\n"),
                c => self.out.push(c),
            }
        }
        let kind = match kind {
            Kind::Counter => "counter",
            Kind::Gauge => "gauge",
            Kind::Histogram => "histogram",
        };
        self.push(&["\n# TYPE ", name, " ", kind, "\n"]);
    }

    /// One sample with a whole number.
    pub fn count(&mut self, name: &str, labels: &[Label<'_>], value: u64) {
        self.head(name, labels);
        self.push(&[" ", itoa::Buffer::new().format(value), "\n"]);
    }

    /// One sample with a signed whole number.
    pub fn level(&mut self, name: &str, labels: &[Label<'_>], value: i64) {
        self.head(name, labels);
        self.push(&[" ", itoa::Buffer::new().format(value), "\n"]);
    }

    /// One sample in seconds, given in microseconds.
    pub fn seconds(&mut self, name: &str, labels: &[Label<'_>], us: u64) {
        self.head(name, labels);
        // Exact up to 2^53 µs, which is 285 years.
        let written = writeln!(self.out, " {}", us as f64 / 1e6);
        debug_assert!(written.is_ok(), "a string takes everything");
    }

    fn head(&mut self, name: &str, labels: &[Label<'_>]) {
        self.out.push_str(name);
        for (index, (label, value)) in labels.iter().enumerate() {
            self.push(&[if index == 0 { "{" } else { "," }, label, "=\""]);
            for c in value.chars() {
                match c {
                    '\\' => self.out.push_str("\\\\"),
                    '"' => self.out.push_str("\\\""),
                    '\n' => self.out.push_str("\\n"),
                    c => self.out.push(c),
                }
            }
            self.out.push('"');
        }
        if !labels.is_empty() {
            self.out.push('}');
        }
    }

    fn push(&mut self, parts: &[&str]) {
        for part in parts {
            self.out.push_str(part);
        }
    }
}
