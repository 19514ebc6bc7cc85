//! Counting and logging a request allocates nothing once its series exists.

use std::time::Duration;

use heddle_counting::{Counting, Heap};
use heddle_telemetry::{
    AccessLog, HttpLabels, Record, Registry, Reporter, Target, Tls, TrafficLabels,
};

#[global_allocator]
static COUNTING: Counting = Counting;

#[test]
fn ten_thousand_requests_on_one_thread() {
    let dir = tempfile::tempdir().expect("a folder");
    let log = AccessLog::open(Target::File(dir.path().join("log")), "edge-1").expect("a log");
    let registry = Registry::new();
    let stats = registry.worker(&[]);
    let mut sink = log.sink(stats);
    let series = registry.http_series(HttpLabels {
        traffic: TrafficLabels {
            reporter: Reporter::Both,
            source: "shop/web".into(),
            source_principal: "spiffe://cluster.local/ns/shop/sa/web".into(),
            destination_service: "shop/reviews".into(),
            destination_workload: "shop/reviews-1".into(),
            tls: Tls::None,
        },
        route: "shop/split".into(),
    });
    let upstream = "127.0.0.1:9080".parse().ok();

    let mut requests = |count: u64| {
        for number in 0..count {
            series.record(200, number * 37 % 20_000_000, 10, 128);
            series.reject(&["no-endpoint"], 0);
            sink.record(&Record {
                unix_ms: 1_767_225_600_000 + number * 13,
                reporter: Reporter::Both,
                source: "shop/web",
                source_principal: "spiffe://cluster.local/ns/shop/sa/web",
                client: ([10, 0, 0, 7], 40_000).into(),
                destination_workload: "shop/reviews-1",
                tls: Tls::None,
                protocol: "http/1.1",
                authority: b"reviews",
                destination_service: "shop/reviews",
                route: "shop/split",
                method: b"GET",
                path: b"/reviews/\"\xff?q=1",
                status: 200,
                reason: "ok",
                blame: "",
                duration_us: number,
                upstream,
                request_bytes: 10,
                response_bytes: 128,
                attempts: 1,
            });
        }
        sink.flush();
    };
    requests(100);
    assert!(log.wait_written(Duration::from_secs(20)));
    let before = Heap::of_thread().allocations;
    requests(10_000);
    assert_eq!(Heap::of_thread().allocations - before, 0);
}
