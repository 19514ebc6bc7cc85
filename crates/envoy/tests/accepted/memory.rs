//! The memory of a stock Envoy: empty, lazy with three Services, and with all of a mesh.
//!
//! Measured is anonymous memory (proc(5), `smaps_rollup`): the program's own text is in the page cache, and shared by all Envoys
//! of a machine.

use std::collections::BTreeSet;
use std::time::Duration;

use heddle_model::{
    AppProtocol, Endpoint, Forwarding, Mesh, Node, NodeName, Proxy, Service, ServiceAccountName,
    ServiceName, ServicePort, Shared,
};

use crate::served::Served;
use crate::{Envoy, meshes, start};

/// Services of a load namespace: 15 carry requests, 4 bytes. Each has so many pods.
const OF_NAMESPACE: usize = 19;
const BYTES_OF_NAMESPACE: usize = 4;
const PODS: usize = 5;
/// How long an Envoy rests before it is measured.
const REST: Duration = Duration::from_secs(3);

fn service(number: usize) -> Service {
    let namespace = format!("load-{}", number / OF_NAMESPACE);
    let name = ServiceName::new(&namespace, &format!("s{}", number % OF_NAMESPACE));
    let [_, _, high, low] = u32::try_from(number).expect("few").to_be_bytes();
    let pod = |pod: usize| Endpoint {
        address: ([10, u8::try_from(pod).expect("few"), high, low], 8_080).into(),
        weight: 1,
        max_requests: None,
        workload: None,
        remote_workload: None,
        account: ServiceAccountName::new(&namespace, "load").ok(),
        node: None,
        has_envoy: true,
    };
    let protocol = match number % OF_NAMESPACE < BYTES_OF_NAMESPACE {
        true => AppProtocol::Tcp,
        false => AppProtocol::Http,
    };
    Service {
        name: name.expect("a name"),
        headless: false,
        addresses: vec![[10, 96, high, low].into()],
        balancer: Default::default(),
        balancing: Default::default(),
        ports: vec![ServicePort {
            name: None,
            port: 80,
            protocol,
            endpoints: (0..PODS).map(pod).collect(),
            routes: None,
            consumer_routes: Default::default(),
        }],
    }
}

fn mesh(services: usize, is_lazy: bool) -> Mesh {
    let mut workload = meshes::workload(&[], false, is_lazy);
    workload.proxy = Proxy::Envoy { lazy: is_lazy };
    let mut mesh = Mesh {
        generation: 1,
        address_ranges: vec!["10.0.0.0/8".parse().expect("a range")],
        services: (0..services).map(service).map(Shared::from).collect(),
        nodes: vec![Node {
            name: NodeName::parse("n1").expect("a name"),
            address: ([10, 1, 0, 1], 15_008).into(),
        }],
        ..Mesh::default()
    };
    mesh.services.sort_by(|a, b| a.name.cmp(&b.name));
    mesh.put_workload(Shared::from(workload));
    let [gateway, _] = meshes::gateways();
    let account = gateway.service_account.clone();
    mesh.put_workload(Shared::from(gateway));
    mesh.forwarding = Forwarding::of(&mesh, [account]).into();
    mesh
}

/// Anonymous memory in KiB.
fn anonymous_kib(envoy: &Envoy) -> u64 {
    let file = format!("/proc/{}/smaps_rollup", envoy.0.id());
    let text = std::fs::read_to_string(file).expect("it runs");
    let line = text.lines().find(|line| line.starts_with("Anonymous:"));
    let fields = line.and_then(|line| line.split_whitespace().nth(1));
    fields.and_then(|kib| kib.parse().ok()).expect("a number")
}

/// What an Envoy has of a mesh: its memory in KiB, and how many clusters it was told.
async fn measured(services: usize, uses: Option<usize>) -> (u64, usize) {
    let dir = tempfile::tempdir().expect("a folder");
    let served = Served::start(&dir.path().join("control"));
    let names: BTreeSet<_> = (0..uses.unwrap_or(0))
        .map(|number| service(number * 5).name.to_string().into())
        .collect();
    served.put(mesh(services, uses.is_some()));
    served.learn(&meshes::workload(&[], false, false).service_account, names);
    let envoy = start(
        &heddle_skips::envoy().expect("an Envoy"),
        dir.path(),
        crate::DELTA,
    );
    let answered = tokio::time::timeout(Duration::from_secs(60), served.settled()).await;
    assert!(answered.is_ok(), "it does not answer");
    tokio::time::sleep(REST).await;
    assert!(served.refused().is_empty(), "{:?}", served.refused());
    (anonymous_kib(&envoy), served.clusters())
}

#[tokio::test]
#[ignore = "slow: starts Envoys with 10,000 pods"]
async fn a_lazy_envoy_is_small_in_a_large_mesh() {
    let (empty, _) = measured(0, Some(0)).await;
    let above = |kib: u64| i64::try_from(kib).expect("few") - i64::try_from(empty).expect("few");
    println!("empty: {empty} KiB");
    let mut lazy_above = Vec::new();
    for (pods, bar_percent) in [(500, 100), (900, 15), (10_000, 3), (50_000, 3)] {
        let services = pods / PODS;
        let (lazy, of_lazy) = measured(services, Some(3)).await;
        let (full, of_full) = measured(services, None).await;
        let percent = above(lazy) * 100 / above(full).max(1);
        println!(
            "{pods} pods: lazy {lazy} KiB ({} above empty, {of_lazy} clusters), full {full} KiB ({} above empty, \
             {of_full} clusters): {percent} %",
            above(lazy),
            above(full)
        );
        assert!(percent <= bar_percent, "{percent} % of full");
        lazy_above.push(lazy);
    }
    let (least, most) = (lazy_above.iter().min(), lazy_above.iter().max());
    let (least, most) = (least.expect("some"), most.expect("some"));
    assert!(
        most * 100 <= least * 105,
        "a lazy Envoy grows with the mesh: {least} to {most} KiB"
    );
}
