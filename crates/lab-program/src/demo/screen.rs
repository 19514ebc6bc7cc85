//! Shows the traffic as a table: redrawn on a terminal, otherwise printed once for each phase.

#[cfg(test)]
mod tests;

use std::io::{self, IsTerminal, Write};
use std::time::{Duration, Instant};

use super::metrics::{Edge, EdgeTraffic, History, Window};

/// Length of the bar for a share of 100 %, in characters.
const BAR: f64 = 20.0;

/// Terminal or other output of the demo.
pub(super) struct Screen {
    started: Instant,
    live: bool,
    /// Lines of the table at the end of the screen, which the next drawing replaces.
    drawn: usize,
}

impl Screen {
    pub(super) fn new() -> Self {
        Self {
            started: Instant::now(),
            live: io::stdout().is_terminal(),
            drawn: 0,
        }
    }

    /// Prints a message with the time since the start.
    pub(super) fn say(&mut self, text: &str) {
        self.drawn = 0;
        println!("[{:4.1} s] {text}", self.started.elapsed().as_secs_f64());
    }

    /// Prints details of the last message, indented.
    pub(super) fn quote(&mut self, text: &str) {
        self.drawn = 0;
        for line in text.lines() {
            println!("  {line}");
        }
    }

    /// Redraws the table on a terminal; does nothing elsewhere.
    pub(super) fn show(&mut self, history: &History) {
        if self.live {
            self.draw(history);
        }
    }

    /// Draws the table for the last time in this phase; it stays on the screen.
    pub(super) fn settle(&mut self, history: &History) {
        self.draw(history);
        self.drawn = 0;
    }

    fn draw(&mut self, history: &History) {
        let table = table(history);
        let mut frame = String::new();
        if self.drawn > 0 {
            // Up to the first line of the old table, and erase from there.
            frame = format!("\x1b[{}A\x1b[J", self.drawn);
        }
        frame.push_str(&table);
        // Write errors are ignored: a closed terminal must not end the demo.
        let mut out = io::stdout().lock();
        let _ = out.write_all(frame.as_bytes()).and_then(|()| out.flush());
        self.drawn = table.lines().count();
    }
}

/// The traffic of the last seconds, one line for each caller, Service and route, as counted by the caller's node;
/// then the shares of reviews v1 and v2 in the shopper's pages.
fn table(history: &History) -> String {
    let Window {
        length,
        mut edges,
        pages,
    } = history.window();
    // The shopper's line comes first.
    edges.sort_by_key(|(edge, _)| (edge.source != super::SHOPPER, *edge));
    let mut table = format!(
        "  {:<12} {:<6} {:<12} {:<8} {:>7} {:>7} {:>7} {:>9} {:>9}\n",
        "CALLER", "ON", "SERVICE", "ROUTE", "REQ/S", "REFUSED", "FAILED", "P50", "P99"
    );
    for (edge, traffic) in &edges {
        table.push_str(&line(edge, traffic, length));
    }
    let total = pages.iter().sum::<u64>().max(1);
    for (version, count) in ["v1", "v2"].iter().zip(pages) {
        let share = count as f64 / total as f64;
        table.push_str(&format!(
            "  pages with reviews {version}   {}\n",
            bar(share)
        ));
    }
    table
}

fn line(edge: &Edge, traffic: &EdgeTraffic, length: Duration) -> String {
    format!(
        "  {:<12} {:<6} {:<12} {:<8} {:>7.1} {:>7} {:>7} {:>9} {:>9}\n",
        short(&edge.source),
        edge.node,
        short(&edge.service),
        short(&edge.route),
        traffic.requests as f64 / length.as_secs_f64(),
        traffic.refused,
        traffic.failed,
        milliseconds(traffic.latency(0.5)),
        milliseconds(traffic.latency(0.99)),
    )
}

/// A name without its namespace: the bookstore has only one.
pub(super) fn short(name: &str) -> &str {
    match name.split_once('/') {
        Some((_, name)) => name,
        None if name.is_empty() => "-",
        None => name,
    }
}

fn milliseconds(latency: Option<Duration>) -> String {
    latency.map_or("-".to_owned(), |latency| {
        format!("{:.2} ms", latency.as_secs_f64() * 1e3)
    })
}

/// A share in percent and as a bar.
fn bar(share: f64) -> String {
    let cells = (share * BAR).round() as usize;
    format!("{:>5.1} % {}", share * 100.0, "█".repeat(cells))
        .trim_end()
        .to_owned()
}
