//! Following replicas gives what a compilation of everything gives.

use std::sync::Arc;

use heddle_model::Shared;
use heddle_model::report::Origin;

use super::*;
use crate::Placement;
use crate::registered::{Entry, Layout, Providers};

/// Services that select in several ways, policies of both kinds, a slice, and workloads with their own addresses.
const FOLDER: &str = "apiVersion: v1
kind: Namespace
metadata: {name: shop, labels: {heddle.dev/mode: strict}}
---
apiVersion: v1
kind: ServiceAccount
metadata: {name: web, namespace: shop, annotations: {heddle.dev/registry: allow}}
---
apiVersion: v1
kind: Service
metadata: {name: web, namespace: shop}
spec: {selector: {app: web}, ports: [{name: a, port: 80, targetPort: http}, {name: b, port: 81, targetPort: 8080}]}
---
apiVersion: v1
kind: Service
metadata: {name: cart, namespace: shop, annotations: {heddle.dev/max-requests: '9'}}
spec: {selector: {app: cart}, ports: [{port: 80, targetPort: 8080}]}
---
apiVersion: v1
kind: Service
metadata: {name: named, namespace: shop}
spec: {selector: {heddle.dev/service: cart}, ports: [{port: 80, targetPort: other}]}
---
apiVersion: v1
kind: Service
metadata: {name: sliced, namespace: shop}
spec: {ports: [{port: 80}]}
---
apiVersion: discovery.k8s.io/v1
kind: EndpointSlice
metadata: {name: sliced, namespace: shop, labels: {kubernetes.io/service-name: sliced}}
addressType: IPv4
endpoints: [{addresses: [10.0.0.1]}]
ports: [{port: 8080}]
---
apiVersion: heddle.dev/v1alpha1
kind: LocalWorkload
metadata: {name: own, namespace: shop, labels: {app: web}}
spec: {address: 10.0.0.2, nodeName: n1, ports: [{name: http, port: 8080}]}
---
apiVersion: heddle.dev/v1alpha1
kind: LocalWorkload
metadata: {name: nowhere, namespace: shop}
spec: {address: 10.0.0.3}
---
apiVersion: heddle.dev/v1alpha1
kind: AuthorizationPolicy
metadata: {name: few, namespace: shop}
spec:
  targetRefs: [{kind: Pod, selector: {matchLabels: {app: cart}}}]
  action: ALLOW
  rules: [{sources: [{type: ServiceAccount, serviceAccount: {name: web}}], networkAttributes: {ports: [8080]}}]
---
apiVersion: access.smi-spec.io/v1alpha3
kind: TrafficTarget
metadata: {name: t, namespace: shop}
spec:
  destination: {kind: ServiceAccount, name: web}
  sources: [{kind: ServiceAccount, name: web}]
  rules: [{kind: TCPRoute, name: r}]
---
apiVersion: specs.smi-spec.io/v1alpha4
kind: TCPRoute
metadata: {name: r, namespace: shop}
spec: {matches: {ports: [8080]}}
";

/// A provider as a test draws it.
#[derive(Debug, Clone)]
struct Drawn {
    /// Its Service and name.
    key: (usize, u8),
    app: usize,
    host: u8,
    node: Option<u8>,
    ports: usize,
    weight: u8,
    account: bool,
    more: usize,
    created: i64,
}

fn drawn() -> impl Strategy<Value = Drawn> {
    let common = |most: usize| prop_oneof![4 => Just(0), 1 => 0..most];
    (
        (0..2usize, 0..6u8),
        common(3),
        1..24u8,
        prop::option::weighted(0.95, 1..3u8),
        common(3),
        1..3u8,
        any::<bool>(),
        common(4),
        1..40i64,
    )
        .prop_map(
            |(key, app, host, node, ports, weight, account, more, created)| Drawn {
                key,
                app,
                host,
                node,
                ports,
                weight,
                account,
                more,
                created,
            },
        )
}

impl Drawn {
    fn entry(&self) -> Entry {
        let (service, name) = self.key;
        let service = ["web", "cart"][service];
        let key = format!("/heddle/v1/providers/shop/{service}/p{name}");
        let app = match self.app {
            0 => service,
            1 => "web",
            _ => "other",
        };
        let ports = [
            "{name: http, port: 8080}",
            "{name: http, port: 8081}",
            "{port: 8080}",
        ];
        let node = self.node.map(|node| format!(", nodeName: n{node}"));
        let account = if self.account && service == "web" {
            ", serviceAccountName: web"
        } else {
            ""
        };
        let metadata =
            ["", ", annotations: {heddle.dev/max-requests: '3'}"][usize::from(self.more == 1)];
        let spec = match self.more {
            2 => ", addresses: [10.0.1.1]",
            3 => ", readinessProbe: {httpGet: {path: /, port: 8080}}",
            _ => "",
        };
        let value = format!(
            "apiVersion: heddle.dev/v1alpha1\nkind: LocalWorkload\nmetadata: {{labels: {{app: {app}}}{metadata}}}\n\
             spec: {{address: 10.0.0.{}, weight: {}, ports: [{}]{}{account}{spec}}}\n",
            self.host,
            self.weight,
            ports[self.ports],
            node.unwrap_or_default(),
        );
        Entry {
            key: Layout::default().provider(key.as_bytes()).expect("a key"),
            origin: Origin::etcd(key),
            value: value.into_bytes(),
            created: self.created,
        }
    }
}

/// A folder that is served beside a registry.
struct Beheld {
    served: Served,
    providers: Providers,
}

impl Beheld {
    fn new() -> Self {
        Beheld {
            served: Served::new(),
            providers: Providers::default(),
        }
    }

    fn set(&mut self, entry: Arc<Entry>) {
        self.remove(&entry);
        let mut entries: Vec<_> = self.providers.entries.iter().cloned().collect();
        entries.push(entry);
        entries.sort_by_key(|one| one.key.to_string());
        self.providers.entries = entries.into_iter().collect();
    }

    fn remove(&mut self, entry: &Entry) {
        let entries = self.providers.entries.iter();
        let left = entries.filter(|one| one.key != entry.key);
        self.providers.entries = left.cloned().collect();
    }

    fn look(&mut self) {
        self.providers.version += 1;
        let options = Options {
            placement: Placement::ByNode,
            ..Options::default()
        };
        let beside = Beside {
            dir: DIR.as_ref(),
            options: &options,
            providers: Some(&self.providers),
        };
        let scan = Scan::of_texts(&[("a.yaml", FOLDER)]);
        let serving = &mut self.served.serving;
        (self.served.mesh, self.served.report) = serving.read((&scan, scan.digest()), beside, true);
    }

    fn is_following(&self) -> bool {
        let in_force = self.served.serving.in_force.as_ref();
        in_force.is_some_and(|current| current.replicas.is_some())
    }

    fn compile_all(&mut self) {
        if let Some(in_force) = &mut self.served.serving.in_force {
            in_force.replicas = None;
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(48))]

    #[test]
    fn what_is_followed_is_what_would_be_compiled(
        begin in prop::collection::vec(drawn(), 0..10),
        edits in prop::collection::vec(prop::collection::vec((drawn(), prop::bool::weighted(0.8)), 1..3), 1..24),
    ) {
        let (mut followed, mut compiled) = (Beheld::new(), Beheld::new());
        for beheld in [&mut followed, &mut compiled] {
            begin.iter().for_each(|one| beheld.set(Arc::new(one.entry())));
            beheld.look();
        }
        for edit in edits {
            for beheld in [&mut followed, &mut compiled] {
                for (one, is_there) in &edit {
                    beheld.set(Arc::new(one.entry()));
                    if !is_there {
                        beheld.remove(&one.entry());
                    }
                }
            }
            compiled.compile_all();
            followed.look();
            compiled.look();
            prop_assert_eq!(&followed.served.mesh, &compiled.served.mesh);
            prop_assert_eq!(&followed.served.report, &compiled.served.report);
        }
    }
}

/// A provider of the Service `cart` at an address.
fn cart(name: u8, host: u8) -> Arc<Entry> {
    Arc::new(
        Drawn {
            key: (1, name),
            app: 0,
            host,
            node: Some(1),
            ports: 0,
            weight: 1,
            account: false,
            more: 0,
            created: 1,
        }
        .entry(),
    )
}

fn hosts(mesh: &Mesh) -> Vec<String> {
    let endpoints = mesh.services[0].endpoints();
    endpoints.map(|one| one.address.to_string()).collect()
}

#[test]
fn a_replica_changes_its_services_and_nothing_else() {
    let folder = FOLDER.replace("targetPort: other", "targetPort: http");
    let mut beheld = Beheld::new();
    beheld.served.mesh = None;
    let look = |beheld: &mut Beheld| {
        beheld.providers.version += 1;
        let options = Options::default();
        let beside = Beside {
            dir: DIR.as_ref(),
            options: &options,
            providers: Some(&beheld.providers),
        };
        let scan = Scan::of_texts(&[("a.yaml", &folder)]);
        let (mesh, report) = beheld
            .served
            .serving
            .read((&scan, scan.digest()), beside, true);
        (mesh.expect("a mesh"), report)
    };
    beheld.set(cart(0, 10));
    beheld.set(cart(1, 12));
    let (before, report) = look(&mut beheld);
    assert!(report.refused.is_empty(), "{:#?}", report.problems);
    assert!(beheld.is_following(), "from the beginning on");
    assert_eq!(hosts(&before), ["10.0.0.10:8080", "10.0.0.12:8080"]);

    beheld.set(cart(1, 13));
    beheld.set(cart(2, 12));
    let (after, report) = look(&mut beheld);
    assert_eq!(
        hosts(&after),
        ["10.0.0.10:8080", "10.0.0.12:8080", "10.0.0.13:8080"],
        "also when an address goes from one to another"
    );
    assert!(beheld.is_following());
    assert_eq!(report.registered.len(), 3);
    let is_same: Vec<(String, bool)> = after
        .services
        .iter()
        .zip(&before.services)
        .map(|(one, other)| (one.name.to_string(), Shared::is_same(one, other)))
        .collect();
    let names = is_same
        .iter()
        .map(|(name, is_same)| (name.as_str(), *is_same));
    assert_eq!(
        names.collect::<Vec<_>>(),
        [
            ("shop/cart", false),
            ("shop/named", false),
            ("shop/sliced", true),
            ("shop/web", true)
        ]
    );
    let workload = |name: &str| {
        let by_name = |mesh: &Mesh| {
            mesh.workloads
                .iter()
                .find(|one| one.name.name.as_str() == name)
                .cloned()
        };
        by_name(&before).zip(by_name(&after)).expect("both have it")
    };
    let (one, other) = workload("cart.p0");
    assert!(Shared::is_same(&one, &other));
    assert_eq!(
        after
            .workload(&workload("cart.p1").1.name)
            .map(|one| one.policies.len()),
        Some(1)
    );
}
