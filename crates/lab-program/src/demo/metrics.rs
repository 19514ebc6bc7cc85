//! The nodes' counters, read from their metrics pages.

#[cfg(test)]
mod tests;

use std::collections::{BTreeMap, VecDeque};
use std::time::{Duration, Instant};

/// Rates and latencies are calculated over this time.
const WINDOW: Duration = Duration::from_secs(5);

/// Counters of refused requests and handshakes, each with a `reason` label.
pub(super) const REJECTED: &str = "heddle_requests_rejected_total";
pub(super) const HANDSHAKES_REFUSED: &str = "heddle_handshakes_refused_total";

/// Caller, Service and route, as counted by a node.
#[derive(Clone, Debug, Default, Eq, Ord, PartialEq, PartialOrd)]
pub(super) struct Edge {
    pub(super) node: &'static str,
    pub(super) source: String,
    pub(super) service: String,
    pub(super) route: String,
}

/// Counters of one edge.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct EdgeTraffic {
    pub(super) requests: u64,
    /// Requests that were refused: with the status 403.
    pub(super) refused: u64,
    /// Other requests without a status of 2xx or 3xx.
    pub(super) failed: u64,
    /// Upper bound in seconds, and the number of requests up to it.
    buckets: Vec<(f64, u64)>,
}

impl EdgeTraffic {
    /// The latency below which the share `quantile` of the requests stayed, interpolated linearly within a bucket;
    /// `None` without requests.
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

    fn since(&self, earlier: &EdgeTraffic) -> EdgeTraffic {
        let before = |index: usize| earlier.buckets.get(index).map_or(0, |bucket| bucket.1);
        let buckets = self.buckets.iter().enumerate();
        EdgeTraffic {
            requests: self.requests.saturating_sub(earlier.requests),
            refused: self.refused.saturating_sub(earlier.refused),
            failed: self.failed.saturating_sub(earlier.failed),
            buckets: buckets
                .map(|(index, &(bound, count))| (bound, count.saturating_sub(before(index))))
                .collect(),
        }
    }
}

/// All counters at one time.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct MetricsReading {
    /// Each request as counted by the caller's node only, since the node that serves it counts it too.
    traffic: BTreeMap<Edge, EdgeTraffic>,
    /// Failed requests as counted by every node, by node and caller.
    failed: BTreeMap<(&'static str, String), u64>,
    refused: BTreeMap<(&'static str, &'static str, String), u64>,
    generation: BTreeMap<&'static str, u64>,
}

impl MetricsReading {
    /// Adds a node's page in OpenMetrics format; unknown metrics are ignored. `calls_here` tells whether a caller is
    /// on this node.
    pub(super) fn add(
        &mut self,
        node: &'static str,
        page: &str,
        calls_here: impl Fn(&str) -> bool,
    ) {
        for sample in page.lines().filter_map(Sample::parse) {
            // Traffic within a node is counted with both reporters; traffic between nodes is counted with one
            // reporter on each.
            let is_of_source = sample.label("reporter") == "source";
            let is_made_here = || is_of_source && calls_here(sample.label("source"));
            match sample.name {
                "heddle_http_requests_total" => {
                    if is_of_source && sample.has_failed() {
                        let caller = (node, sample.label("source").to_owned());
                        *self.failed.entry(caller).or_default() += sample.count();
                    }
                    if is_made_here() {
                        self.add_requests(node, &sample);
                    }
                }
                "heddle_http_request_duration_seconds_bucket" if is_made_here() => {
                    self.add_bucket(node, &sample);
                }
                // The smallest generation counts: that of the last Worker to apply a configuration.
                "heddle_worker_config_generation" => {
                    let generation = self.generation.entry(node).or_insert(u64::MAX);
                    *generation = sample.count().min(*generation);
                }
                REJECTED if sample.label("reporter") == "destination" => {
                    self.add_refused(node, REJECTED, &sample);
                }
                HANDSHAKES_REFUSED => self.add_refused(node, HANDSHAKES_REFUSED, &sample),
                _ => {}
            }
        }
    }

    /// The generation of the configuration that the proxy of a node uses.
    pub(super) fn generation(&self, node: &str) -> u64 {
        self.generation.get(node).copied().unwrap_or(0)
    }

    /// Failed requests on all nodes, of all callers but one.
    pub(super) fn failed_but_of(&self, caller: &str) -> u64 {
        let all = self.failed.iter();
        all.filter(|((_, source), _)| source != caller)
            .map(|(_, count)| count)
            .sum()
    }

    /// Refusals of a node with this reason, from one of the counters above.
    pub(super) fn refused(&self, node: &str, counter: &str, reason: &str) -> u64 {
        let all = self.refused.iter();
        all.filter(|((at, name, why), _)| (*at, *name, why.as_str()) == (node, counter, reason))
            .map(|(_, count)| count)
            .sum()
    }

    fn add_refused(&mut self, node: &'static str, name: &'static str, sample: &Sample<'_>) {
        let reason = sample.label("reason").to_owned();
        *self.refused.entry((node, name, reason)).or_default() += sample.count();
    }

    fn add_requests(&mut self, node: &'static str, sample: &Sample<'_>) {
        let traffic = self.traffic.entry(sample.edge(node)).or_default();
        traffic.requests += sample.count();
        if sample.label("status") == "403" {
            traffic.refused += sample.count();
        } else if sample.has_failed() {
            traffic.failed += sample.count();
        }
    }

    fn add_bucket(&mut self, node: &'static str, sample: &Sample<'_>) {
        if let Ok(bound) = sample.label("le").parse() {
            let traffic = self.traffic.entry(sample.edge(node)).or_default();
            // The buckets of all workloads behind the Service are added up.
            match traffic.buckets.iter_mut().find(|known| known.0 == bound) {
                Some((_, count)) => *count += sample.count(),
                None => traffic.buckets.push((bound, sample.count())),
            }
        }
    }
}

/// Everything shown at one time.
struct Moment {
    at: Instant,
    reading: MetricsReading,
    /// Pages of the shopper so far, by version of the reviews.
    pages: [u64; 2],
}

/// Readings of the last few seconds.
#[derive(Default)]
pub(super) struct History(VecDeque<Moment>);

/// Differences over the last few seconds.
#[derive(Default)]
pub(super) struct Window<'history> {
    pub(super) length: Duration,
    pub(super) edges: Vec<(&'history Edge, EdgeTraffic)>,
    /// Pages of the shopper, by version of the reviews.
    pub(super) pages: [u64; 2],
}

impl History {
    /// Adds a reading, and drops those older than the window.
    pub(super) fn push(&mut self, at: Instant, reading: MetricsReading, pages: [u64; 2]) {
        self.0.push_back(Moment { at, reading, pages });
        let old = |moment: &Moment| at.duration_since(moment.at) >= WINDOW;
        while self.0.get(1).is_some_and(old) {
            self.0.pop_front();
        }
    }

    /// Drops all readings but the last, so that a new phase is not mixed with the one before.
    pub(super) fn restart(&mut self) {
        self.0.drain(..self.0.len().saturating_sub(1));
    }

    pub(super) fn window(&self) -> Window<'_> {
        let (Some(first), Some(last)) = (self.0.front(), self.0.back()) else {
            return Window::default();
        };
        let none = EdgeTraffic::default();
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

    /// Whether it counts responses other than 2xx and 3xx.
    fn has_failed(&self) -> bool {
        !self.label("status").starts_with(['2', '3'])
    }

    fn edge(&self, node: &'static str) -> Edge {
        Edge {
            node,
            source: self.label("source").to_owned(),
            service: self.label("destination_service").to_owned(),
            route: self.label("route").to_owned(),
        }
    }
}

/// Parses `name="value",…}`; returns the labels and the text after the brace.
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
