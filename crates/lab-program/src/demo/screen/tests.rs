use std::time::{Duration, Instant};

use super::table;
use crate::demo::metrics::{History, MetricsReading};

#[test]
fn each_edge_that_is_used_has_a_line_and_the_split_a_bar() {
    let sample = |source: &str, service: &str, route: &str, count: u64| {
        format!(
            "heddle_http_requests_total{{reporter=\"source\",source=\"bookstore/{source}\",\
             destination_service=\"bookstore/{service}\",route=\"{route}\",\
             status=\"200\"}} {count}\n"
        )
    };
    let page = |count: u64| {
        sample("productpage", "reviews", "bookstore/reviews", count)
            + &sample("productpage", "unused", "", 4)
            + &sample("shopper", "productpage", "", count)
    };
    let read = |count| {
        let mut reading = MetricsReading::default();
        reading.add("edge-1", &page(count), |_| true);
        reading
    };
    let now = Instant::now();
    let mut history = History::default();
    history.push(now, read(10), [10, 0]);
    history.push(now + Duration::from_secs(2), read(110), [100, 10]);

    let table = table(&history);
    let lines: Vec<Vec<&str>> = table
        .lines()
        .map(|line| line.split_whitespace().collect())
        .collect();
    assert_eq!(
        lines[1][..7],
        ["shopper", "edge-1", "productpage", "-", "50.0", "0", "0"]
    );
    assert_eq!(
        lines[2][..7],
        [
            "productpage",
            "edge-1",
            "reviews",
            "reviews",
            "50.0",
            "0",
            "0"
        ]
    );
    assert_eq!(lines[3][3..], ["v1", "90.0", "%", "██████████████████"]);
    assert_eq!(lines[4][3..], ["v2", "10.0", "%", "██"]);
    assert_eq!(lines.len(), 5, "{table}");
}
