use std::time::{Duration, Instant};

use super::table;
use crate::demo::metrics::{History, Reading};

#[test]
fn each_edge_has_a_line_and_routes_show_how_they_share() {
    let page = |pages: u64| {
        let sample = |source: &str, service: &str, route: &str, count: u64| {
            format!(
                "heddle_http_requests_total{{source=\"bookstore/{source}\",\
                 destination_service=\"bookstore/{service}\",route=\"{route}\",\
                 status_class=\"2xx\"}} {count}\n"
            )
        };
        sample(
            "productpage",
            "reviews-v1",
            "bookstore/reviews",
            pages * 9 / 10,
        ) + &sample("productpage", "reviews-v2", "bookstore/reviews", pages / 10)
            + &sample("shopper", "productpage", "", pages)
            + &sample("productpage", "unused", "", 4)
    };
    let now = Instant::now();
    let mut history = History::default();
    history.push(now, Reading::parse(&page(0)));
    history.push(now + Duration::from_secs(2), Reading::parse(&page(100)));

    let table = table(&history);
    let lines: Vec<Vec<&str>> = table
        .lines()
        .map(|line| line.split_whitespace().collect())
        .collect();
    assert_eq!(lines[1][..4], ["shopper", "productpage", "-", "50.0"]);
    assert_eq!(
        lines[2][..4],
        ["productpage", "reviews-v1", "reviews", "45.0"]
    );
    assert_eq!(lines[2][7..], ["90", "%", "██████████████████"]);
    assert_eq!(lines[3][7..], ["10", "%", "██"]);
    assert_eq!(lines.len(), 4, "{table}");
}
