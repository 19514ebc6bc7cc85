use super::*;

#[test]
fn what_a_heddle_counts_is_summed_over_its_workers_and_protocols() {
    let metrics = "\
# TYPE heddle_node_bytes counter
heddle_node_bytes_total{worker=\"0\",direction=\"sent\",protocol=\"http1\"} 400
heddle_node_bytes_total{worker=\"0\",direction=\"received\",protocol=\"http1\"} 300
heddle_node_bytes_total{worker=\"0\",direction=\"sent\",protocol=\"link\"} 50
heddle_node_bytes_total{worker=\"1\",direction=\"received\",protocol=\"link\"} 7
heddle_http_response_bytes_total{direction=\"sent\"} 1
";
    let expected = Moved {
        sent: 450,
        received: 307,
    };
    assert_eq!(of_heddle(metrics), Some(expected));
    assert_eq!(expected.total(), 757);
    assert_eq!(
        of_heddle("heddle_ready 1\n"),
        None,
        "it does not count that"
    );
}

#[test]
fn what_an_envoy_counts_is_summed_over_its_clusters() {
    let stats = "\
cluster.echo0.upstream_cx_rx_bytes_total: 1200
cluster.echo0.upstream_cx_tx_bytes_total: 800
cluster.echo0-canary.upstream_cx_rx_bytes_total: 0
cluster.echo0-canary.upstream_cx_tx_bytes_total: 5
";
    let expected = Moved {
        sent: 805,
        received: 1200,
    };
    assert_eq!(of_envoy(stats), Some(expected));
    assert_eq!(of_envoy(""), None);
}

#[test]
fn sockets_are_summed_and_counted() {
    let lines = "\
0      0      127.0.0.1:48290    127.0.0.1:4100  cubic wscale:7,7 rto:204 bytes_sent:1000 bytes_acked:1001 bytes_received:500 segs_out:12 segs_in:9 data_segs_out:5
0      0      127.0.0.1:48291    127.0.0.1:4100  cubic bytes_sent:10 bytes_acked:11 bytes_received:5 segs_out:2 segs_in:1
";
    let expected = OnSockets {
        moved: Moved {
            sent: 1010,
            received: 505,
        },
        segments: 24,
        connections: 2,
    };
    assert_eq!(of_ss(lines), expected);
    assert_eq!(of_ss("\n"), OnSockets::default());
}

#[test]
fn counters_are_compared_with_what_they_were() {
    let moved = |sent, received| Moved { sent, received };
    assert_eq!(moved(10, 8) - moved(4, 3), moved(6, 5));
    assert_eq!(moved(1, 1) - moved(4, 0), moved(0, 1), "it began again");
}
