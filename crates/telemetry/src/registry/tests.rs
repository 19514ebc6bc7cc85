use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::{Duration, Instant};

use super::{LOOK_EVERY, Registry, SeriesBounds};
use crate::{HttpLabels, NodeProtocol, Reporter, Tls, TrafficLabels};

fn traffic(reporter: Reporter, source: &str, destination: &str) -> TrafficLabels {
    TrafficLabels {
        reporter,
        source: source.into(),
        source_principal: "spiffe://td/ns/a/sa/b".into(),
        destination_service: destination.into(),
        destination_workload: "ns/pod".into(),
        tls: Tls::Mutual,
    }
}

fn labels(source: &str, destination: &str, route: &str) -> HttpLabels {
    HttpLabels {
        traffic: traffic(Reporter::Source, source, destination),
        route: route.into(),
    }
}

/// The labels of a sample in the exposition.
fn written(reporter: &str, source: &str, destination: &str, route: Option<&str>) -> String {
    let route = route.map_or_else(String::new, |route| format!(r#",route="{route}""#));
    format!(
        r#"reporter="{reporter}",source="{source}",source_principal="spiffe://td/ns/a/sa/b",destination_service="{destination}",destination_workload="ns/pod"{route},tls="mutual""#
    )
}

fn rendered(registry: &Registry) -> Exposition {
    let mut text = String::new();
    registry.render(&mut text);
    Exposition::parse(&text)
}

#[test]
fn two_workers_are_one_sum() {
    let registry = Registry::new();
    let first = registry.http_series(labels("shop/web", "shop/reviews", "shop/split"));
    let second = registry.http_series(labels("shop/web", "shop/reviews", "shop/split"));
    assert!(!Arc::ptr_eq(&first, &second), "each writer has its own");
    first.record(200, 40, 1, 2);
    second.record(200, 20_000_000, 10, 20);
    second.record(0, 300, 0, 0);

    let metrics = rendered(&registry);
    let of = written("source", "shop/web", "shop/reviews", Some("shop/split"));
    let value = |name: &str, more: &str| metrics.value(&format!("{name}{{{of}{more}}}"));
    assert_eq!(value("heddle_http_requests_total", r#",status="200""#), "2");
    assert_eq!(
        value("heddle_http_requests_total", r#",status="none""#),
        "1"
    );
    assert_eq!(value("heddle_http_request_bytes_total", ""), "11");
    assert_eq!(value("heddle_http_response_bytes_total", ""), "22");
    let bounds = "0.00005 0.0001 0.00025 0.0005 0.001 0.0025 0.005 0.01 0.025 0.05 0.1 0.25 0.5 \
        1.0 2.5 5.0 10.0 +Inf";
    let bucket = |le| {
        let name = "heddle_http_request_duration_seconds_bucket";
        metrics.value(&format!(r#"{name}{{le="{le}",{of}}}"#))
    };
    let buckets: Vec<_> = bounds.split_whitespace().map(bucket).collect();
    assert_eq!(buckets[..4], ["1", "1", "1", "2"]);
    assert_eq!(buckets[16..], ["2", "3"]);
    assert_eq!(value("heddle_http_request_duration_seconds_count", ""), "3");
    assert_eq!(
        value("heddle_http_request_duration_seconds_sum", ""),
        "20.00034"
    );
}

#[test]
fn a_dropped_series_keeps_its_counts_and_is_used_again() {
    let registry = Registry::new();
    let first = registry.http_series(labels("a", "b", "c"));
    first.record(200, 1, 0, 0);
    let address = Arc::as_ptr(&first);
    drop(first);
    let second = registry.http_series(labels("a", "b", "c"));
    assert_eq!(Arc::as_ptr(&second), address);
    second.record(200, 1, 0, 0);
    let of = written("source", "a", "b", Some("c"));
    let sample = format!(r#"heddle_http_requests_total{{{of},status="200"}}"#);
    assert_eq!(rendered(&registry).value(&sample), "2");
}

#[test]
fn a_request_that_stays_on_its_node_is_shown_under_both_reporters_and_counted_once() {
    let registry = Registry::new();
    let of = |reporter| HttpLabels {
        traffic: traffic(reporter, "a", "b"),
        route: "c".into(),
    };
    registry
        .http_series(of(Reporter::Both))
        .record(200, 1, 0, 0);
    registry
        .http_series(of(Reporter::Source))
        .record(200, 1, 0, 0);
    let tcp = registry.tcp_series(traffic(Reporter::Both, "a", "b"));
    tcp.connections_total.inc();
    let metrics = rendered(&registry);
    let requests = |reporter| {
        let of = written(reporter, "a", "b", Some("c"));
        metrics
            .value(&format!(
                r#"heddle_http_requests_total{{{of},status="200"}}"#
            ))
            .to_owned()
    };
    assert_eq!(requests("source"), "2");
    assert_eq!(requests("destination"), "1");
    for reporter in ["source", "destination"] {
        let of = written(reporter, "a", "b", None);
        let sample = format!("heddle_tcp_connections_total{{{of}}}");
        assert_eq!(metrics.value(&sample), "1");
    }
    assert!(metrics.0.keys().all(|sample| !sample.contains("both")));
}

#[test]
fn latencies_are_of_requests_to_workloads_of_this_node() {
    let registry = Registry::new();
    for (reporter, source, us) in [
        (Reporter::Both, "a", 50),
        (Reporter::Destination, "b", 51),
        (Reporter::Destination, "b", 20_000_000),
        (Reporter::Source, "a", 50),
    ] {
        let of = HttpLabels {
            traffic: traffic(reporter, source, "b"),
            route: "c".into(),
        };
        registry.http_series(of).record(200, us, 0, 0);
    }
    let all = registry.latencies();
    let counts = &all["ns/pod"];
    assert_eq!(all.len(), 1);
    assert_eq!(counts.len(), crate::latency_bounds_us().len() + 1);
    assert_eq!(counts[..2], [1, 1]);
    assert_eq!((counts.iter().sum::<u64>(), counts.last()), (3, Some(&1)));
}

#[test]
fn label_sets_are_bounded_and_the_rest_is_other() {
    const MAX: usize = 1_000;
    const COLLAPSED: usize = MAX / 10;
    let registry = Registry::with_bounds(SeriesBounds {
        label_sets: MAX,
        unused: Duration::ZERO,
    });
    let many = MAX + 2 * COLLAPSED;
    let held: Vec<_> = (0..many)
        .map(|n| registry.http_series(labels("a", &format!("ns/{n}"), "c")))
        .collect();
    held.iter().for_each(|series| series.record(200, 1, 0, 0));
    let metrics = rendered(&registry);
    assert_eq!(
        metrics.value("heddle_metrics_overflow_total"),
        (2 * COLLAPSED).to_string()
    );
    let sample = r#"heddle_http_requests_total{reporter="source",source="other",source_principal="other",destination_service="other",destination_workload="other",route="other",tls="mutual",status="200"}"#;
    assert_eq!(metrics.value(sample), COLLAPSED.to_string());
    assert!(registry.lock().http.len() <= MAX + COLLAPSED + 1);

    // Label sets that no Worker writes any more make room for new ones once they were unused for a tenth of the time
    // for which they are exposed, though maybe not at the first attempt.
    drop(held);
    let has_room = |_: &u64| {
        registry.http_series(labels("new", "ns/new", "c"));
        registry
            .lock()
            .http
            .contains_key(&labels("new", "ns/new", "c"))
    };
    assert!((0..LOOK_EVERY).find(has_room).is_some());
}

#[test]
fn series_of_callers_that_are_gone_are_shown_for_a_while_and_then_forgotten() {
    const CALLERS: usize = 10_000;
    let bounds = SeriesBounds {
        label_sets: CALLERS + 1,
        unused: Duration::from_secs(60),
    };
    let registry = Registry::with_bounds(bounds);
    let of = |n| traffic(Reporter::Both, &format!("a/caller-{n}"), "b");
    let stays = registry.tcp_series(traffic(Reporter::Both, "a/stays", "b"));
    for n in 0..CALLERS {
        registry.tcp_series(of(n)).connections_total.inc();
        registry.http_series(labels(&format!("a/{n}"), "b", "c"));
    }
    let sizes = || {
        let inner = registry.lock();
        (inner.tcp.len(), inner.http.len())
    };
    let began = Instant::now();
    registry.forget_unused(began);
    let after = |seconds| registry.forget_unused(began + Duration::from_secs(seconds));
    after(59);
    assert_eq!(sizes(), (CALLERS + 1, CALLERS));
    // A label set that is used again within the time continues its count.
    let back = registry.tcp_series(of(7));
    assert_eq!(back.connections_total.get(), 1);
    after(60);
    assert_eq!(sizes(), (2, 0), "what has a writer stays");
    drop((stays, back));
    after(61);
    after(120);
    assert_eq!(sizes(), (2, 0), "its time began when that was seen");
    after(121);
    assert_eq!(sizes(), (0, 0));
}

#[test]
fn failed_connections_are_one_sum_and_shown_only_where_there_are_any() {
    const REASONS: &[&str] = &["no-endpoint", "reset"];
    let registry = Registry::new();
    let series = || registry.tcp_series(traffic(Reporter::Source, "shop/web", "shop/db"));
    let (first, second) = (series(), series());
    first.fail(REASONS, 1);
    first.fail(REASONS, 99);
    second.fail(REASONS, 1);
    let metrics = rendered(&registry);
    let sample = |reason| {
        let of = written("source", "shop/web", "shop/db", None);
        format!(r#"heddle_tcp_connections_failed_total{{{of},reason="{reason}"}}"#)
    };
    assert_eq!(metrics.value(&sample("reset")), "2");
    assert!(!metrics.0.contains_key(&sample("no-endpoint")));
}

#[test]
fn rejected_requests_are_counted_with_their_ends_and_reason() {
    const REASONS: &[&str] = &["no-endpoint", "bad-request"];
    let registry = Registry::new();
    let series = registry.http_series(labels("a", "b", "c"));
    series.reject(REASONS, 1);
    series.reject(REASONS, 99);
    let of = written("source", "a", "b", Some("c"));
    let sample = |reason| format!(r#"heddle_requests_rejected_total{{{of},reason="{reason}"}}"#);
    let metrics = rendered(&registry);
    assert_eq!(metrics.value(&sample("bad-request")), "1");
    assert!(!metrics.0.contains_key(&sample("no-endpoint")));
}

#[test]
fn workers_are_told_apart() {
    let registry = Registry::new();
    let stats = [
        registry.worker(&["refused", "late"]),
        registry.worker(&["refused"]),
    ];
    stats[0].handshakes_refused.inc(1);
    stats[0].handshakes_refused.inc(99);
    stats[0].connections_active.inc();
    stats[1].connections_active.add(4);
    stats[1].connections_active.dec();
    stats[1].busy_ns.add(1_500_000_000);
    stats[1].node_bytes.sent(NodeProtocol::Http1).add(450);
    stats[1].node_bytes.received(NodeProtocol::Http1).add(300);
    let metrics = rendered(&registry);
    let bytes = |worker: u8, direction: &str| {
        let labels = format!(r#"worker="{worker}",direction="{direction}",protocol="http1""#);
        metrics.value(&format!("heddle_node_bytes_total{{{labels}}}"))
    };
    assert_eq!([bytes(0, "sent"), bytes(0, "received")], ["0", "0"]);
    assert_eq!([bytes(1, "sent"), bytes(1, "received")], ["450", "300"]);
    assert_eq!(
        metrics.value(r#"heddle_handshakes_refused_total{worker="0",reason="late"}"#),
        "1"
    );
    assert_eq!(
        metrics.value(r#"heddle_handshakes_refused_total{worker="1",reason="refused"}"#),
        "0"
    );
    assert_eq!(
        metrics.value(r#"heddle_connections_active{worker="0"}"#),
        "1"
    );
    assert_eq!(
        metrics.value(r#"heddle_connections_active{worker="1"}"#),
        "3"
    );
    assert_eq!(
        metrics.value(r#"heddle_worker_busy_seconds_total{worker="1"}"#),
        "1.5"
    );
}

#[test]
fn a_worker_that_has_ended_keeps_its_counts_and_shows_no_level() {
    let registry = Registry::new();
    let (stats, manager) = (registry.worker(&[]), registry.manager());
    stats.connections_refused.inc();
    stats.config_generation.set(7);
    manager.connections_refused.add(2);
    assert_eq!(registry.connections_refused(), 3);
    let refused = r#"heddle_connections_refused_total{worker="0"}"#;
    let generation = r#"heddle_worker_config_generation{worker="0"}"#;
    assert_eq!(rendered(&registry).value(generation), "7");
    stats.end();
    let metrics = rendered(&registry);
    assert!(!metrics.0.contains_key(generation));
    assert_eq!(metrics.value(refused), "1");
    let refused = r#"heddle_connections_refused_total{worker="manager"}"#;
    assert_eq!(metrics.value(refused), "2");
    stats.begin_again();
    assert_eq!(rendered(&registry).value(generation), "0");
}

#[test]
fn two_thousand_label_sets_are_told_apart_and_one_that_is_unused_is_shown_for_ten_minutes() {
    let bounds = SeriesBounds::default();
    assert_eq!(bounds.label_sets, 2_000);
    assert_eq!(bounds.unused, Duration::from_secs(600));
    assert_eq!(Registry::new().bounds().unused, bounds.unused);
}

#[test]
fn a_sum_of_a_year_is_exact_to_a_microsecond() {
    let registry = Registry::new();
    let year_us = 365 * 86_400 * 1_000_000 + 1;
    registry
        .http_series(labels("a", "b", "c"))
        .record(200, year_us, 0, 0);
    let of = written("source", "a", "b", Some("c"));
    let metrics = rendered(&registry);
    let sum = metrics.value(&format!("heddle_http_request_duration_seconds_sum{{{of}}}"));
    assert_eq!(sum, "31536000.000001");
}

/// The parsed exposition. Parsing panics where the text breaks the rules of the format.
struct Exposition(BTreeMap<String, String>);

impl Exposition {
    fn parse(text: &str) -> Self {
        let lines = text.strip_suffix("# EOF\n").expect("an end").lines();
        let mut samples = BTreeMap::new();
        let mut families = BTreeSet::new();
        let (mut help, mut family, mut suffixes) = ("", "", &[""] as &[&str]);
        for line in lines {
            if let Some(of) = line.strip_prefix("# HELP ") {
                help = of.split(' ').next().expect("a name");
            } else if let Some(of) = line.strip_prefix("# TYPE ") {
                let (name, kind) = of.split_once(' ').expect("a kind");
                assert_eq!(name, help, "TYPE after HELP");
                assert!(name.starts_with("heddle_"), "{name}");
                assert!(families.insert(name), "{name} comes twice");
                suffixes = match kind {
                    "counter" => &["_total"],
                    "gauge" => &[""],
                    "histogram" => &["_bucket", "_sum", "_count"],
                    _ => panic!("{line}"),
                };
                family = name;
            } else {
                let (sample, value) = line.rsplit_once(' ').expect("a value");
                assert!(value.parse::<f64>().is_ok(), "{line}");
                let name = sample.split('{').next().expect("a name");
                let suffix = name.strip_prefix(family);
                let is_of_family = suffix.is_some_and(|suffix| suffixes.contains(&suffix));
                assert!(is_of_family, "{line} is not of {family}");
                let twice = samples.insert(sample.to_owned(), value.to_owned());
                assert!(twice.is_none(), "{sample} comes twice");
            }
        }
        Exposition(samples)
    }

    fn value(&self, sample: &str) -> &str {
        self.0
            .get(sample)
            .unwrap_or_else(|| panic!("no sample {sample}"))
    }
}
