//! Who may ask for what: Envoys, and gateways among them.

use std::sync::atomic::Ordering::Relaxed;
use std::time::Duration;

use envoy_types::pb::envoy::config::core::v3::Node;
use envoy_types::pb::envoy::service::accesslog::v3::StreamAccessLogsMessage;
use envoy_types::pb::envoy::service::accesslog::v3::access_log_service_client::AccessLogServiceClient;
use envoy_types::pb::envoy::service::discovery::v3::aggregated_discovery_service_client::AggregatedDiscoveryServiceClient;
use envoy_types::pb::envoy::service::discovery::v3::{
    DeltaDiscoveryRequest, DeltaDiscoveryResponse, DiscoveryRequest,
};
use envoy_types::pb::envoy::service::load_stats::v3::load_reporting_service_client::LoadReportingServiceClient;
use envoy_types::pb::envoy::service::load_stats::v3::{LoadStatsRequest, LoadStatsResponse};
use heddle_authority::Denied;
use heddle_envoy::Kind;
use heddle_model::{
    Forwarding, Mesh, ServiceAccountName, Shared, SpiffeId, TrustDomain, WorkloadName,
};
use heddle_xds::MAX_ACCESSES;
use hyper_util::rt::TokioIo;
use tokio::sync::mpsc;
use tokio_stream::wrappers::ReceiverStream;
use tonic::transport::{Channel, Endpoint};
use tonic::{Code, Status, Streaming};
use tower::service_fn;

use super::placing::mesh;
use super::{Control, DAY, NOW, discover, node_id, own, refused, request, services, workload};
use crate::PeerCertificate;

const MANIFESTS: &str = "apiVersion: v1
kind: ServiceAccount
metadata: {name: gateway, namespace: mesh, annotations: {heddle.dev/gateway: default}}
---
apiVersion: heddle.dev/v1alpha1
kind: LocalWorkload
metadata: {name: gw, namespace: mesh, annotations: {heddle.dev/proxy: envoy}}
spec: {address: 127.1.0.1, nodeName: n1, serviceAccountName: gateway}
---
apiVersion: heddle.dev/v1alpha1
kind: LocalWorkload
metadata: {name: web, namespace: shop, labels: {app: web}, annotations: {heddle.dev/proxy: envoy}}
spec: {address: 127.1.0.2, nodeName: n1, ports: [{port: 80}]}
---
apiVersion: heddle.dev/v1alpha1
kind: LocalWorkload
metadata: {name: plain, namespace: shop}
spec: {address: 127.1.0.3, nodeName: n1}
---
apiVersion: v1
kind: Service
metadata: {name: web, namespace: shop}
spec: {clusterIP: 10.96.0.1, selector: {app: web}, ports: [{port: 80, appProtocol: http}]}
";

async fn control() -> Control {
    let control = Control::empty().await;
    control.board.put(mesh(MANIFESTS));
    // What a server does beside its connections.
    let (envoys, board) = (control.envoys.clone(), control.board.clone());
    tokio::spawn(async move { envoys.follow(&board).await });
    control
}

fn envoy_id(workload: &str) -> SpiffeId {
    let workload = WorkloadName::parse(workload).expect("a name");
    SpiffeId::envoy(TrustDomain::default(), workload)
}

async fn channel(control: &Control, id: SpiffeId) -> Channel {
    let certificate = PeerCertificate {
        id,
        serial: None,
        not_after: u64::MAX,
    };
    let io = control.pipe(Some(certificate), "192.0.2.1").await;
    let mut io = Some(TokioIo::new(io));
    let connector = service_fn(move |_| {
        let io = io.take();
        async move { io.ok_or_else(|| std::io::Error::other("one connection only")) }
    });
    let endpoint = Endpoint::from_static("http://control");
    endpoint
        .connect_with_connector(connector)
        .await
        .expect("a channel")
}

struct Ads {
    says: mpsc::Sender<DeltaDiscoveryRequest>,
    told: Streaming<DeltaDiscoveryResponse>,
}

impl Ads {
    async fn begin(control: &Control, id: SpiffeId, node: &str) -> Result<Ads, Status> {
        let (says, said) = mpsc::channel(8);
        let first = DeltaDiscoveryRequest {
            node: Some(Node {
                id: node.to_owned(),
                ..Node::default()
            }),
            type_url: Kind::Cluster.type_url().to_owned(),
            ..DeltaDiscoveryRequest::default()
        };
        says.send(first).await.expect("room");
        let mut client = AggregatedDiscoveryServiceClient::new(channel(control, id).await);
        let begun = client
            .delta_aggregated_resources(ReceiverStream::new(said))
            .await?;
        let told = begun.into_inner();
        Ok(Ads { says, told })
    }

    async fn next(&mut self) -> Result<DeltaDiscoveryResponse, Status> {
        Ok(self.told.message().await?.expect("a message"))
    }

    async fn accept(&self, answer: &DeltaDiscoveryResponse) {
        let accepted = DeltaDiscoveryRequest {
            type_url: answer.type_url.clone(),
            response_nonce: answer.nonce.clone(),
            ..DeltaDiscoveryRequest::default()
        };
        self.says.send(accepted).await.expect("room");
    }

    async fn subscribe(&mut self, kind: Kind, name: &str) -> DeltaDiscoveryResponse {
        let request = DeltaDiscoveryRequest {
            type_url: kind.type_url().to_owned(),
            resource_names_subscribe: vec![name.to_owned()],
            ..DeltaDiscoveryRequest::default()
        };
        self.says.send(request).await.expect("room");
        self.next().await.expect("an answer")
    }
}

fn names(response: &DeltaDiscoveryResponse) -> Vec<&str> {
    let resources = response.resources.iter();
    resources.map(|resource| resource.name.as_str()).collect()
}

#[tokio::test]
async fn an_envoy_is_told_clusters_and_the_secrets_of_its_workload() {
    let control = control().await;
    let begun = Ads::begin(&control, envoy_id("shop/web"), "shop/web").await;
    let mut ads = begun.expect("it is served");
    let clusters = ads.next().await.expect("clusters");
    assert_eq!(clusters.type_url, Kind::Cluster.type_url());
    assert!(names(&clusters).contains(&"shop/web/80"), "{clusters:?}");
    for secret in ["heddle:leaf", "heddle:roots"] {
        let answer = ads.subscribe(Kind::Secret, secret).await;
        assert_eq!(names(&answer), [secret]);
        ads.accept(&answer).await;
    }
}

#[tokio::test]
async fn an_envoy_that_asks_for_state_of_the_world_xds_is_told_whole_lists() {
    let control = control().await;
    let (says, said) = mpsc::channel(8);
    let ask = |nonce: &str| DiscoveryRequest {
        node: Some(Node {
            id: "shop/web".to_owned(),
            ..Node::default()
        }),
        type_url: Kind::Cluster.type_url().to_owned(),
        response_nonce: nonce.to_owned(),
        ..DiscoveryRequest::default()
    };
    says.send(ask("")).await.expect("room");
    let mut client =
        AggregatedDiscoveryServiceClient::new(channel(&control, envoy_id("shop/web")).await);
    let begun = client
        .stream_aggregated_resources(ReceiverStream::new(said))
        .await;
    let mut told = begun.expect("it is served").into_inner();
    let first = told.message().await.expect("told").expect("clusters");
    assert_eq!(first.type_url, Kind::Cluster.type_url());
    says.send(ask(&first.nonce)).await.expect("room");
    let more = "---\napiVersion: v1\nkind: Service\nmetadata: {name: more, namespace: shop}\n\
                spec: {clusterIP: 10.96.0.2, selector: {app: web}, ports: [{port: 80, appProtocol: http}]}\n";
    control.board.put(mesh(&format!("{MANIFESTS}{more}")));
    let second = told.message().await.expect("told").expect("clusters");
    assert_eq!(second.resources.len(), first.resources.len() + 1);
    assert_ne!(second.version_info, first.version_info);
}

/// The next leaf that the Envoy is told, as it is sent.
async fn leaf(ads: &mut Ads, answer: Option<DeltaDiscoveryResponse>) -> Vec<u8> {
    let answer = match answer {
        Some(answer) => answer,
        None => loop {
            let next = ads.next().await.expect("an answer");
            ads.accept(&next).await;
            if next.type_url == Kind::Secret.type_url() {
                break next;
            }
        },
    };
    assert_eq!(names(&answer), ["heddle:leaf"]);
    let resource = answer.resources[0].resource.clone();
    resource.expect("a secret").value
}

#[tokio::test]
async fn a_workload_that_gets_another_account_gets_its_leaf_unless_that_is_denied() {
    let control = control().await;
    let begun = Ads::begin(&control, envoy_id("shop/web"), "shop/web").await;
    let mut ads = begun.expect("it is served");
    let clusters = ads.next().await.expect("clusters");
    ads.accept(&clusters).await;
    let answer = ads.subscribe(Kind::Secret, "heddle:leaf").await;
    ads.accept(&answer).await;
    let first = leaf(&mut ads, Some(answer)).await;
    let account =
        "apiVersion: v1\nkind: ServiceAccount\nmetadata: {name: other, namespace: shop}\n---\n";
    let own = "ports: [{port: 80}]}";
    let other = "serviceAccountName: other, ports: [{port: 80}]}";
    control
        .board
        .put(mesh(&format!("{account}{}", MANIFESTS.replace(own, other))));
    let second = leaf(&mut ads, None).await;
    assert_ne!(first, second);
    // Back to the first account, which is denied now: no leaf, and the stream goes on.
    control.deny(Denied::Identity(SpiffeId::workload(
        TrustDomain::default(),
        heddle_model::ServiceAccountName::parse("shop/default").expect("a name"),
    )));
    let more = "---\napiVersion: v1\nkind: Service\nmetadata: {name: more, namespace: shop}\n\
                spec: {clusterIP: 10.96.0.2, selector: {app: web}, ports: [{port: 80, appProtocol: http}]}\n";
    control.board.put(mesh(&format!("{MANIFESTS}{more}")));
    loop {
        let next = ads.next().await.expect("an answer");
        ads.accept(&next).await;
        assert_ne!(next.type_url, Kind::Secret.type_url(), "{next:?}");
        if names(&next).contains(&"shop/more/80") {
            break;
        }
    }
}

#[tokio::test]
async fn only_the_envoy_of_a_workload_that_has_one_is_served() {
    let control = control().await;
    for (id, node, code) in [
        // A node, and the workload itself.
        (node_id("n1"), "n1", Code::PermissionDenied),
        (workload("web"), "shop/web", Code::PermissionDenied),
        // Another workload's name.
        (envoy_id("shop/web"), "mesh/gw", Code::PermissionDenied),
        (envoy_id("shop/web"), "", Code::PermissionDenied),
        // Workloads without an Envoy.
        (envoy_id("shop/plain"), "shop/plain", Code::NotFound),
        (envoy_id("shop/gone"), "shop/gone", Code::NotFound),
    ] {
        let shown = format!("{id} as {node}");
        let answer = match Ads::begin(&control, id, node).await {
            Ok(mut ads) => ads.next().await,
            Err(status) => Err(status),
        };
        let status = answer.expect_err(&shown);
        assert_eq!(status.code(), code, "{shown}: {status:?}");
    }
}

#[tokio::test]
async fn the_identity_of_an_envoy_opens_nothing_that_is_for_nodes() {
    let control = control().await;
    let client = control.connect_as(envoy_id("shop/web"), None).await;
    let why = refused(discover(&client, &own("n1")).await);
    assert!(why.contains("only nodes"), "{why}");
    let issued = client.issue(&workload("web"), &request()).await;
    assert!(issued.is_err(), "{issued:?}");
}

#[tokio::test]
async fn only_gateways_report_accesses() {
    let control = control().await;
    for (id, expected) in [
        (envoy_id("mesh/gw"), None),
        (envoy_id("shop/web"), Some(Code::PermissionDenied)),
        (envoy_id("shop/plain"), Some(Code::PermissionDenied)),
        (node_id("n1"), Some(Code::PermissionDenied)),
    ] {
        let shown = id.to_string();
        let mut client = AccessLogServiceClient::new(channel(&control, id).await);
        let nothing: [StreamAccessLogsMessage; 0] = [];
        let answer = client.stream_access_logs(tokio_stream::iter(nothing)).await;
        // A call of a gateway ends without an answer.
        let code = answer.err().map(|status| status.code());
        let code = code.filter(|code| *code == Code::PermissionDenied);
        assert_eq!(code, expected, "{shown}");
    }
}

#[tokio::test]
async fn a_node_reports_accesses_only_as_long_as_it_is_a_gateway() {
    let control = control().await;
    let client = control.node("n1").await;
    let access = || {
        let account = ServiceAccountName::new("shop", "web").expect("a name");
        (account, [10, 0, 0, 1].into())
    };
    let why = refused(client.report([access()].into_iter()).await);
    assert!(why.contains("only nodes that are gateways"), "{why}");
    // The Envoy of a gateway has another service for it.
    let envoy = control.connect_as(envoy_id("mesh/gw"), None).await;
    assert!(refused(envoy.report([access()].into_iter()).await).contains("only nodes"));
    // A workload of the node has the role, and no Envoy.
    let with_envoy = "name: gw, namespace: mesh, annotations: {heddle.dev/proxy: envoy}";
    let without = MANIFESTS.replacen(with_envoy, "name: gw, namespace: mesh", 1);
    assert_ne!(without, MANIFESTS);
    control.board.put(mesh(&without));
    let reported = client.report([access()].into_iter()).await;
    assert!(reported.is_ok(), "{reported:?}");
    let counted = control.counters.accesses_reported.load(Relaxed);
    assert_eq!(counted, 1);
    let many = (0..=MAX_ACCESSES).map(|_| access());
    assert!(refused(client.report(many).await).contains("too many"));
    let elsewhere = control.node("n2").await;
    let why = refused(elsewhere.report([access()].into_iter()).await);
    assert!(why.contains("only nodes that are gateways"), "{why}");
}

/// What the control plane asks an Envoy for, or why it is refused.
async fn asked_for_load(control: &Control, id: SpiffeId) -> Result<LoadStatsResponse, Status> {
    let mut client = LoadReportingServiceClient::new(channel(control, id).await);
    let (says, said) = mpsc::channel(1);
    says.send(LoadStatsRequest::default()).await.expect("room");
    let begun = client.stream_load_stats(ReceiverStream::new(said)).await?;
    let mut asks = begun.into_inner();
    let asked = asks.message().await?;
    Ok(asked.expect("a question"))
}

#[tokio::test]
async fn only_a_lazy_envoy_is_asked_what_it_uses() {
    let control = control().await;
    let eager = asked_for_load(&control, envoy_id("shop/web")).await;
    assert!(!eager.expect("it may report").send_all_clusters);
    let lazy = MANIFESTS.replacen(
        "labels: {app: web}, annotations: {",
        "labels: {app: web}, annotations: {lazy-xds: \"true\", ",
        1,
    );
    assert_ne!(lazy, MANIFESTS);
    let mut of = mesh(&lazy);
    of.address_ranges = vec!["10.0.0.0/8".parse().expect("a range")];
    of.forwarding = Forwarding::of(&of, of.forwarding.gateways.clone()).into();
    control.board.put(of);
    let asked = asked_for_load(&control, envoy_id("shop/web")).await;
    assert!(asked.expect("it may report").send_all_clusters);
    for id in [node_id("n1"), workload("web")] {
        let refused = asked_for_load(&control, id).await;
        let code = refused.expect_err("it is no Envoy").code();
        assert_eq!(code, Code::PermissionDenied);
    }
}

#[tokio::test(start_paused = true)]
async fn a_denied_account_has_no_part_in_forwarding_until_its_entry_expires() {
    let control = Control::start();
    let account = |name: &str| ServiceAccountName::new("shop", name).unwrap();
    control.board.put(Mesh {
        forwarding: Shared::from(Forwarding {
            gateways: vec![account("gate")],
            lazy: vec![account("cart"), account("web")],
        }),
        ..services(0)
    });
    let are_lazy = async |expected: &[&str]| {
        let expected: Vec<_> = expected.iter().map(|name| account(name)).collect();
        let lazy = || control.board.newest().unwrap().forwarding.lazy.clone();
        let all = async {
            while lazy() != expected {
                tokio::time::sleep(Duration::from_millis(10)).await;
            }
        };
        let in_time = tokio::time::timeout(Duration::from_secs(60), all).await;
        assert!(in_time.is_ok(), "{:?}, not {expected:?}", lazy());
    };
    are_lazy(&["cart", "web"]).await;
    control.deny(Denied::Identity(workload("web")));
    are_lazy(&["cart"]).await;
    control.time.store(NOW + 10 * DAY, Relaxed);
    are_lazy(&["cart", "web"]).await;
}
