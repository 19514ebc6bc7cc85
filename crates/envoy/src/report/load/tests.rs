use envoy_types::pb::envoy::config::core::v3::Node;
use envoy_types::pb::envoy::config::endpoint::v3::{ClusterStats, UpstreamLocalityStats};
use envoy_types::pb::envoy::service::load_stats::v3::LoadStatsRequest;

use super::*;

fn cluster(name: &str, loads: &[(u64, u64)]) -> ClusterStats {
    let localities = loads.iter().map(|(issued, open)| UpstreamLocalityStats {
        total_issued_requests: *issued,
        total_requests_in_progress: *open,
        total_error_requests: 5,
        ..UpstreamLocalityStats::default()
    });
    ClusterStats {
        cluster_name: name.to_owned(),
        upstream_locality_stats: localities.collect(),
        total_dropped_requests: 9,
        ..ClusterStats::default()
    }
}

fn read(clusters: Vec<ClusterStats>) -> Load {
    let request = LoadStatsRequest {
        node: Some(Node {
            id: "shop/web".to_owned(),
            ..Node::default()
        }),
        cluster_stats: clusters,
    };
    Load::decode(request.encode_to_vec().as_slice()).expect("a report")
}

#[test]
fn a_report_says_what_is_in_use_and_what_went_through_gateways() {
    let said = read(vec![
        cluster("heddle-gateway", &[(2, 0)]),
        cluster("heddle-passthrough", &[(9, 9)]),
        cluster("shop/api/80", &[(3, 0), (4, 1)]),
        // A connection that carries bytes for long.
        cluster("shop/db/5432/bytes", &[(0, 1)]),
        cluster("shop/idle/80", &[(0, 0)]),
        cluster("shop/none/80", &[]),
        cluster("odd", &[(u64::MAX, u64::MAX), (1, 1)]),
    ]);
    let expected = Load {
        busy: ["shop/api", "shop/db"].map(Name::from).into(),
        direct: 7,
        by_gateway: 2,
    };
    assert_eq!(said, expected);
    assert_eq!(read(Vec::new()), Load::default());
}

#[test]
fn numbers_that_are_too_large_add_up_to_the_largest() {
    let most = read(vec![
        cluster("shop/a/80", &[(u64::MAX, 0), (1, 0)]),
        cluster("shop/b/80", &[(1, 0)]),
    ]);
    assert_eq!(most.direct, u64::MAX);
}

#[test]
fn a_million_empty_localities_and_clusters_take_no_memory() {
    // Two bytes each: field 2, no length.
    let localities = [0x12, 0].repeat(500_000);
    let mut message = vec![0x12];
    prost::encoding::encode_varint(localities.len() as u64, &mut message);
    message.extend(localities);
    message.extend([0x12, 0].repeat(500_000));
    assert_eq!(Load::decode(message.as_slice()), Ok(Load::default()));
    assert!(Load::decode(&message[..9]).is_err());
}
