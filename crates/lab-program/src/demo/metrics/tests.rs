use std::time::{Duration, Instant};

use super::{Edge, HANDSHAKES_REFUSED, History, MetricsReading, REJECTED, Sample};

const PAGE: &str = r#"# HELP heddle_http_requests Finished HTTP requests.
# TYPE heddle_http_requests counter
heddle_http_requests_total{reporter="source",source="ns/a",destination_service="ns/b",route="",status="200"} 90
heddle_http_requests_total{reporter="source",source="ns/a",destination_service="ns/b",route="",status="503"} 10
heddle_http_request_duration_seconds_bucket{le="0.001",reporter="source",source="ns/a",destination_service="ns/b",route=""} 50
heddle_http_request_duration_seconds_bucket{le="0.003",reporter="source",source="ns/a",destination_service="ns/b",route=""} 90
heddle_http_request_duration_seconds_bucket{le="+Inf",reporter="source",source="ns/a",destination_service="ns/b",route=""} 100
heddle_worker_config_generation{worker="0"} 7
heddle_worker_config_generation{worker="1"} 8
heddle_requests_rejected_total{reporter="source",source="ns/a",reason="policy_denied"} 5
heddle_requests_rejected_total{reporter="destination",source="ns/a",reason="policy_denied"} 3
heddle_requests_rejected_total{reporter="destination",source="ns/c",reason="policy_denied"} 2
heddle_handshakes_refused_total{worker="0",reason="anonymous"} 1
some_other_metric 3
# EOF
"#;

fn read(page: &str) -> MetricsReading {
    let mut reading = MetricsReading::default();
    reading.add("edge-1", page, |_| true);
    reading
}

fn edge() -> Edge {
    Edge {
        node: "edge-1",
        source: "ns/a".into(),
        service: "ns/b".into(),
        route: String::new(),
    }
}

#[test]
fn a_page_is_read() {
    let reading = read(PAGE);
    let traffic = &reading.traffic[&edge()];
    assert_eq!((traffic.requests, traffic.failed), (100, 10));
    assert_eq!(reading.generation("edge-1"), 7, "of the last worker");
    assert_eq!(reading.refused("edge-1", REJECTED, "policy_denied"), 5);
    assert_eq!(
        reading.refused("edge-1", HANDSHAKES_REFUSED, "anonymous"),
        1
    );
    assert_eq!(reading.refused("edge-2", REJECTED, "policy_denied"), 0);
}

#[test]
fn a_request_that_two_nodes_count_is_shown_once_and_no_failure_is_lost() {
    let mut reading = read(PAGE);
    reading.add("edge-2", PAGE, |_| false);
    assert_eq!(reading.traffic.len(), 1);
    assert_eq!(reading.failed_but_of("ns/other"), 20);
    assert_eq!(reading.failed_but_of("ns/a"), 0);
    assert_eq!(reading.generation("edge-2"), 7);
}

#[test]
fn latencies_are_even_within_a_bucket() {
    let reading = read(PAGE);
    let traffic = &reading.traffic[&edge()];
    assert_eq!(traffic.latency(0.25), Some(Duration::from_micros(500)));
    assert_eq!(traffic.latency(0.7), Some(Duration::from_micros(2000)));
    assert_eq!(
        traffic.latency(0.99),
        Some(Duration::from_micros(3000)),
        "as high as is known"
    );
}

#[test]
fn a_window_holds_the_last_seconds_only() {
    let start = Instant::now();
    let page = |count: u64| {
        read(&format!(
            "heddle_http_requests_total{{reporter=\"source\",source=\"ns/a\",status=\"200\"}} {count}"
        ))
    };
    let mut history = History::default();
    for second in 0..20 {
        history.push(
            start + Duration::from_secs(second),
            page(second * 10),
            [second, 0],
        );
    }
    let window = history.window();
    assert_eq!(window.length, Duration::from_secs(5));
    assert_eq!(window.edges[0].1.requests, 50);
    assert_eq!(window.pages, [5, 0]);

    history.restart();
    history.push(start + Duration::from_secs(20), page(203), [19, 4]);
    let window = history.window();
    assert_eq!(window.length, Duration::from_secs(1));
    assert_eq!(window.edges[0].1.requests, 13);
    assert_eq!(window.pages, [0, 4]);
}

#[test]
fn labels_are_unescaped_and_broken_lines_passed_over() {
    let sample = Sample::parse(r#"m{a="x\"y\\z",b="{}"} 2"#).unwrap();
    assert_eq!(sample.label("a"), r#"x"y\z"#);
    assert_eq!(sample.label("b"), "{}");
    for broken in [
        "",
        "m",
        "m{",
        "m{a",
        "m{a=\"",
        "m{a=\"b\"",
        "m{a=\"b\"}",
        "m x",
        "m{a=\"\\",
    ] {
        assert!(Sample::parse(broken).is_none(), "{broken}");
    }
}
