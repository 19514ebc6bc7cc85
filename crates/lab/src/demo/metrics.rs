//! What the proxy counts, read from its metrics page.

#[cfg(test)]
mod tests;

use std::collections::{BTreeMap, VecDeque};
use std::time::{Duration, Instant};

/// Rates and latencies are of this last stretch of time.
const WINDOW: Duration = Duration::from_secs(5);

/// Who called whom by which route.
#[derive(Clone, Debug, Default, Eq, Ord, PartialEq, PartialOrd)]
pub(super) struct Edge {
    pub(super) source: String,
    pub(super) service: String,
    pub(super) route: String,
}

/// The requests of one edge.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct Traffic {
    pub(super) requests: u64,
    /// Those that ended with anything but 2xx or 3xx.
    pub(super) failed: u64,
    /// Upper bound in seconds, and how many took no longer than that.
    buckets: Vec<(f64, u64)>,
}

impl Traffic {
    /// The latency that the share `quantile` of the requests did not exceed, taken to be even
    /// within a bucket; none without requests.
    pub(super) fn latency(&self, quantile: f64) -> Option<Duration> {
        let total = self.buckets.last()?.1;
        if total == 0 {
            return None;
        }
        let rank = quantile * total as f64;
        let (mut lower, mut below) = (0.0, 0);
        for &(upper, count) in &self.buckets {
            if count as f64 >= rank {
                if upper.is_infinite() {
                    break;
                }
                let part = (rank - below as f64) / (count - below).max(1) as f64;
                return Some(Duration::from_secs_f64(
                    lower + (upper - lower) * part.max(0.0),
                ));
            }
            (lower, below) = (upper, count);
        }
        Some(Duration::from_secs_f64(lower))
    }

    fn since(&self, earlier: &Traffic) -> Traffic {
        let before = |index: usize| earlier.buckets.get(index).map_or(0, |bucket| bucket.1);
        let buckets = self.buckets.iter().enumerate();
        Traffic {
            requests: self.requests.saturating_sub(earlier.requests),
            failed: self.failed.saturating_sub(earlier.failed),
            buckets: buckets
                .map(|(index, &(bound, count))| (bound, count.saturating_sub(before(index))))
                .collect(),
        }
    }
}

/// All counters at one moment.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct Reading {
    traffic: BTreeMap<Edge, Traffic>,
    generation: u64,
}

impl Reading {
    /// Reads Prometheus' text format; lines of other metrics are passed over.
    pub(super) fn parse(page: &str) -> Self {
        let mut reading = Self::default();
        for sample in page.lines().filter_map(Sample::parse) {
            match sample.name {
                "heddle_http_requests_total" => reading.add_requests(&sample),
                "heddle_http_request_duration_seconds_bucket" => reading.add_bucket(&sample),
                "heddle_worker_config_generation" => reading.generation = sample.count(),
                _ => {}
            }
        }
        reading
    }

    /// Which configuration the proxy's worker has.
    pub(super) fn generation(&self) -> u64 {
        self.generation
    }

    /// How many requests have failed on all edges.
    pub(super) fn failed(&self) -> u64 {
        self.traffic.values().map(|traffic| traffic.failed).sum()
    }

    fn add_requests(&mut self, sample: &Sample<'_>) {
        let traffic = self.traffic.entry(sample.edge()).or_default();
        traffic.requests += sample.count();
        if !matches!(sample.label("status_class"), "2xx" | "3xx") {
            traffic.failed += sample.count();
        }
    }

    fn add_bucket(&mut self, sample: &Sample<'_>) {
        if let Ok(bound) = sample.label("le").parse() {
            let traffic = self.traffic.entry(sample.edge()).or_default();
            traffic.buckets.push((bound, sample.count()));
        }
    }
}

/// All there is to see at one moment.
struct Moment {
    at: Instant,
    reading: Reading,
    /// Pages that the shopper got so far, by version of the reviews.
    pages: [u64; 2],
}

/// The last few seconds.
#[derive(Default)]
pub(super) struct History(VecDeque<Moment>);

/// What happened in the last few seconds.
#[derive(Default)]
pub(super) struct Window<'history> {
    pub(super) length: Duration,
    /// Every edge that was used.
    pub(super) edges: Vec<(&'history Edge, Traffic)>,
    /// Pages that the shopper got, by version of the reviews.
    pub(super) pages: [u64; 2],
}

impl History {
    /// Adds a moment and forgets those that no window needs any more.
    pub(super) fn push(&mut self, at: Instant, reading: Reading, pages: [u64; 2]) {
        self.0.push_back(Moment { at, reading, pages });
        let old = |moment: &Moment| at.duration_since(moment.at) >= WINDOW;
        while self.0.get(1).is_some_and(old) {
            self.0.pop_front();
        }
    }

    /// Forgets all but the last moment, so that what follows is not mixed with what was before.
    pub(super) fn restart(&mut self) {
        self.0.drain(..self.0.len().saturating_sub(1));
    }

    pub(super) fn window(&self) -> Window<'_> {
        let (Some(first), Some(last)) = (self.0.front(), self.0.back()) else {
            return Window::default();
        };
        let none = Traffic::default();
        let before = |edge: &Edge| first.reading.traffic.get(edge).unwrap_or(&none);
        let edges = last.reading.traffic.iter();
        Window {
            length: last.at.duration_since(first.at),
            edges: edges
                .map(|(edge, traffic)| (edge, traffic.since(before(edge))))
                .filter(|(_, traffic)| traffic.requests > 0)
                .collect(),
            pages: [0, 1].map(|version| last.pages[version] - first.pages[version]),
        }
    }
}

/// One line of the page.
struct Sample<'page> {
    name: &'page str,
    labels: Vec<(&'page str, String)>,
    value: f64,
}

impl<'page> Sample<'page> {
    fn parse(line: &'page str) -> Option<Self> {
        if line.starts_with('#') {
            return None;
        }
        let (name, labels, value) = match line.split_once('{') {
            None => {
                let (name, value) = line.split_once(' ')?;
                (name, Vec::new(), value)
            }
            Some((name, rest)) => {
                let (labels, value) = parse_labels(rest)?;
                (name, labels, value)
            }
        };
        Some(Self {
            name,
            labels,
            value: value.trim().parse().ok()?,
        })
    }

    fn label(&self, name: &str) -> &str {
        self.labels
            .iter()
            .find(|label| label.0 == name)
            .map_or("", |label| &label.1)
    }

    fn count(&self) -> u64 {
        self.value as u64
    }

    fn edge(&self) -> Edge {
        Edge {
            source: self.label("source").to_owned(),
            service: self.label("destination_service").to_owned(),
            route: self.label("route").to_owned(),
        }
    }
}

/// Reads `name="value",…}` and gives what follows the brace.
fn parse_labels(mut rest: &str) -> Option<(Vec<(&str, String)>, &str)> {
    let mut labels = Vec::new();
    loop {
        if let Some(after) = rest.strip_prefix('}') {
            return Some((labels, after));
        }
        let (name, quoted) = rest.split_once("=\"")?;
        let mut value = String::new();
        let mut characters = quoted.char_indices();
        let end = loop {
            match characters.next()? {
                (at, '"') => break at,
                (_, '\\') => match characters.next()?.1 {
                    'n' => value.push('\n'),
                    other => value.push(other),
                },
                (_, other) => value.push(other),
            }
        };
        labels.push((name, value));
        rest = &quoted[end + 1..];
        rest = rest.strip_prefix(',').unwrap_or(rest);
    }
}
