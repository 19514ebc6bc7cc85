//! What a proxy reports: metrics and its access log.

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::fs::File;
use std::io::{BufRead, BufReader};
use std::thread;
use std::time::{Duration, Instant};

use heddle_telemetry::{AccessLog, Registry, Target};

use super::PATIENCE;

/// Waits until a metric has this value.
pub(crate) fn expect(registry: &Registry, name: &str, labels: &[&str], value: f64) {
    let patience = Instant::now() + PATIENCE;
    while count(registry, name, labels) != value {
        let now = count(registry, name, labels);
        assert!(
            Instant::now() < patience,
            "{name} {labels:?} is {now}, not {value}"
        );
        thread::yield_now();
    }
}

/// Waits until this number of requests and connections were refused for this reason.
pub(crate) fn expect_rejected(registry: &Registry, reason: &str, times: f64) {
    let label = format!("reason=\"{reason}\"");
    let rejected = || {
        count(registry, "heddle_requests_rejected_total", &[&label])
            + count(registry, "heddle_tcp_connections_failed_total", &[&label])
    };
    let patience = Instant::now() + PATIENCE;
    while rejected() != times {
        assert!(
            Instant::now() < patience,
            "{reason}: {}, not {times}",
            rejected()
        );
        thread::yield_now();
    }
}

/// The value of a metric, summed over the lines that contain all of `labels`. A sample that the proxy shows under
/// both reporters counts once.
pub(crate) fn count(registry: &Registry, name: &str, labels: &[&str]) -> f64 {
    let mut text = String::new();
    registry.render(&mut text);
    let meant = text.lines().filter(|line| {
        line.strip_prefix(name)
            .is_some_and(|rest| rest.starts_with(['{', ' ']))
            && labels.iter().all(|label| line.contains(label))
    });
    let mut once: BTreeMap<String, f64> = BTreeMap::new();
    for (sample, value) in meant.filter_map(|line| line.rsplit_once(' ')) {
        let value: f64 = value.parse().unwrap();
        let of = sample.replace("reporter=\"source\",", "");
        let of = of.replace("reporter=\"destination\",", "");
        let known = once.entry(of).or_default();
        *known = known.max(value);
    }
    once.values().sum()
}

/// A reader of the access log.
pub(crate) struct Log {
    lines: RefCell<BufReader<File>>,
    _dir: tempfile::TempDir,
}

impl Log {
    /// An access log and its reader.
    pub(crate) fn open() -> (AccessLog, Log) {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("access.log");
        let log = AccessLog::open(Target::File(path.clone()), "here").unwrap();
        let lines = BufReader::new(File::open(path).unwrap());
        let lines = RefCell::new(lines);
        (log, Log { lines, _dir: dir })
    }

    /// Waits for the next line.
    pub(crate) fn line(&self) -> String {
        let patience = Instant::now() + PATIENCE;
        let mut line = String::new();
        while !line.ends_with('\n') {
            assert!(Instant::now() < patience, "no line after {line:?}");
            if self.lines.borrow_mut().read_line(&mut line).unwrap() == 0 {
                thread::park_timeout(Duration::from_millis(2));
            }
        }
        line
    }

    /// Waits for the next line, which must contain all of these.
    pub(crate) fn expect(&self, parts: &[&str]) -> String {
        let line = self.line();
        for part in parts {
            assert!(line.contains(part), "no {part} in {line}");
        }
        line
    }
}
