//! Objects that do not fit together, and those that need others.

use super::*;

#[test]
fn of_two_that_contradict_each_other_the_senior_one_stays() {
    let aged = |text: &str, year: u32| {
        text.replacen(
            "metadata: {",
            &format!("metadata: {{creationTimestamp: '{year}-01-01T00:00:00Z', "),
            3,
        )
    };
    // The same objects with another port.
    let one = service("web", 1);
    let two = one.replace("port: 80", "port: 81");
    let port = |mesh: &Mesh| mesh.services[0].ports[0].port;
    let mut served = Served::new();
    assert_eq!(port(served.read(&[("a.yaml", &one), ("b.yaml", &two)])), 80);
    // The account, the workload and the Service of that name.
    assert_eq!(served.refused().len(), 3);
    let (young, old) = (aged(&one, 2024), aged(&two, 2023));
    let mut served = Served::new();
    assert_eq!(
        port(served.read(&[("a.yaml", &young), ("b.yaml", &old)])),
        81
    );
    assert!(
        served.errors()[0].starts_with("/mesh/a.yaml:3: error"),
        "{:?}",
        served.errors()
    );

    // Two workloads at one address: the first in the files has it, whatever their names.
    let (second, first) = (service("a", 7), service("b", 7));
    let mut served = Served::new();
    let mesh = served.read(&[("1.yaml", &first), ("2.yaml", &second)]);
    let names: Vec<&str> = mesh
        .workloads
        .iter()
        .map(|one| one.name.name.as_str())
        .collect();
    assert_eq!(names, ["b"]);
    assert_eq!(
        served.refused(),
        [("LocalWorkload shop/a", InForce::Closed)]
    );
}

#[test]
fn what_refers_to_a_refused_object_is_refused_as_well_and_opens_nothing() {
    let target = "apiVersion: access.smi-spec.io/v1alpha3
kind: TrafficTarget
metadata: {name: t, namespace: shop}
spec:
  destination: {kind: ServiceAccount, name: web}
  sources: [{kind: ServiceAccount, name: cart}]
  rules: [{kind: HTTPRouteGroup, name: g, matches: [m]}]
---
apiVersion: specs.smi-spec.io/v1alpha4
kind: HTTPRouteGroup
metadata: {name: g, namespace: shop}
spec: {matches: [{name: m, pathRegex: /only-this}]}
";
    let text = format!(
        "{}---\n{}---\n{target}",
        service("web", 1),
        service("cart", 2)
    );
    let broken = text.replace("pathRegex", "pathRegeks");
    let mut fresh = Served::new();
    let mesh = fresh.read(&[("a.yaml", &broken)]);
    assert!(
        allowed(mesh).iter().all(|(_, to)| to == "cart"),
        "{:?}",
        allowed(mesh)
    );
    let wanted = [
        ("TrafficTarget shop/t", InForce::Closed),
        ("HTTPRouteGroup shop/g", InForce::Nothing),
    ];
    assert_eq!(fresh.refused(), wanted);
    let errors = fresh.errors();
    assert!(errors[0].contains("TrafficTarget shop/t: spec.rules[0].name: it is refused as well: there is no HTTPRouteGroup"), "{errors:?}");

    let mut served = Served::new();
    served.read(&[("a.yaml", &text)]);
    served.read(&[("a.yaml", &broken)]);
    assert_eq!(
        served.refused(),
        [("HTTPRouteGroup shop/g", InForce::LastGood)]
    );

    // A Service gets another name: the route has no parent any more, and a slice no Service.
    let text = format!("{}---\n{ROUTE}", service("web", 1));
    let renamed = text.replace(
        "kind: Service\nmetadata: {name: web",
        "kind: Service\nmetadata: {name: wob",
    );
    let mut served = Served::new();
    served.read(&[("a.yaml", &text)]);
    assert_eq!(served.read(&[("a.yaml", &renamed)]).services.len(), 1);
    assert_eq!(served.refused(), [("HTTPRoute shop/web", InForce::Closed)]);
}

#[test]
fn nothing_takes_the_place_of_a_workload_that_is_refused() {
    let slice = "apiVersion: discovery.k8s.io/v1
kind: EndpointSlice
metadata: {name: cart, namespace: shop, labels: {kubernetes.io/service-name: cart}}
addressType: IPv4
endpoints: [{addresses: [127.1.0.2]}, {addresses: [10.1.0.2]}]
ports: [{port: 80}]
";
    let web = service("web", 1).replace("127.1.0.2", "10.9.9.9");
    let slice = slice.replace("127.1.0.2", "10.9.9.9");
    let text = format!("{web}---\n{}---\n{slice}", service("cart", 2));
    let broken = text.replace("serviceAccountName: web", "serviceAccountName: wab");
    let addresses = |mesh: &Mesh| -> Vec<String> {
        let cart = mesh
            .services
            .iter()
            .find(|one| one.name.name.as_str() == "cart");
        let endpoints = cart.into_iter().flat_map(|cart| &cart.ports[0].endpoints);
        endpoints.map(|one| one.address.to_string()).collect()
    };
    let mut served = Served::new();
    let all = ["10.1.0.2:80", "10.9.9.9:80", "127.1.0.3:80"];
    assert_eq!(addresses(served.read(&[("a.yaml", &text)])), all);
    let mut fresh = Served::new();
    let mesh = fresh.read(&[("a.yaml", &broken)]);
    assert_eq!(
        addresses(mesh),
        [all[0], all[2]],
        "it would be called past its policies"
    );
    assert_eq!(
        fresh.refused(),
        [("LocalWorkload shop/web", InForce::Closed)]
    );
}

/// An old copy, whose file comes first, takes the place of nothing that is in force.
#[test]
fn a_copy_takes_the_place_of_nothing_that_is_in_force() {
    let services = [service("web", 1), service("cart", 2), service("other", 3)].join("---\n");
    let p = policy("p", "DENY", "{matchLabels: {app: web}}", "cart");
    let copy = p.replace("app: web", "app: other");
    let moved = service("web", 7);
    let mut served = Served::new();
    served.read(&[("b.yaml", &services), ("p.yaml", &p)]);
    for _ in 0..2 {
        let files = [
            ("a.yaml", moved.as_str()),
            ("b.yaml", &services),
            ("o.yaml", &copy),
            ("p.yaml", &p),
        ];
        let mesh = served.read(&files);
        assert!(
            !calls(mesh, "shop/sa/cart", "web"),
            "its policy is in force"
        );
        let at = |host: u8| format!("127.1.0.{host}");
        let addresses = mesh.workloads.iter().map(|one| one.address.to_string());
        assert_eq!(addresses.collect::<Vec<_>>(), [at(3), at(4), at(2)]);
        // The copy is refused, and what it would have concerned is closed: it may be what was meant.
        assert!(!calls(mesh, "shop/sa/web", "other"));
        let wanted = ("AuthorizationPolicy shop/p", InForce::Closed);
        assert!(served.refused().contains(&wanted), "{:?}", served.refused());
        let errors = served.errors().to_vec();
        assert!(
            errors
                .iter()
                .any(|one| one.starts_with("/mesh/o.yaml:3: error")),
            "{errors:?}"
        );
        served = served.again();
    }
    // In force is what the original says, also after an edit of that.
    let edited = p.replace("name: cart", "name: other");
    let files = [
        ("b.yaml", services.as_str()),
        ("o.yaml", &copy),
        ("p.yaml", &edited),
    ];
    let mesh = served.read(&files);
    assert!(calls(mesh, "shop/sa/cart", "web") && !calls(mesh, "shop/sa/other", "web"));
    // A copy that says the same changes nothing.
    let mesh = served.read(&[
        ("b.yaml", &services),
        ("o.yaml", &edited),
        ("p.yaml", &edited),
    ]);
    assert!(calls(mesh, "shop/sa/web", "other"));
    assert_eq!(
        served.refused(),
        [("AuthorizationPolicy shop/p", InForce::Nothing)]
    );
    // Without a last good version the first by file stays, and the second opens nothing.
    let mut fresh = Served::new();
    let mesh = fresh.read(&[("b.yaml", &services), ("o.yaml", &copy), ("p.yaml", &p)]);
    assert!(!calls(mesh, "shop/sa/cart", "web") && !calls(mesh, "shop/sa/other", "web"));
    assert!(!calls(mesh, "shop/sa/cart", "other") && calls(mesh, "shop/sa/web", "other"));
}

/// Whichever of two Namespaces comes first: one of them may have been meant to be strict.
#[test]
fn of_two_namespaces_that_differ_the_mode_is_strict() {
    let namespace =
        |label: &str| format!("apiVersion: v1\nkind: Namespace\nmetadata: {{name: shop{label}}}\n");
    let strict = namespace(", labels: {heddle.dev/mode: strict}");
    let [plain, old] = [
        namespace(""),
        namespace(", creationTimestamp: '2020-01-01T00:00:00Z'"),
    ];
    let services = service("web", 1);
    let is_strict = |mesh: &Mesh| mesh.workloads.iter().all(|one| one.mode == Mode::Strict);
    for (first, second) in [(&plain, &strict), (&strict, &plain), (&strict, &old)] {
        for history in [None, Some([("b.yaml", &strict), ("w.yaml", &services)])] {
            let mut served = Served::new();
            if let Some(files) = history {
                served.read(&files.map(|(file, text)| (file, text.as_str())));
            }
            for _ in 0..2 {
                let mesh =
                    served.read(&[("a.yaml", first), ("b.yaml", second), ("w.yaml", &services)]);
                assert!(is_strict(mesh), "{first}{second}");
            }
        }
    }
    // Two that say the same are one.
    let mut served = Served::new();
    let mesh = served.read(&[
        ("a.yaml", &plain),
        ("b.yaml", &plain),
        ("w.yaml", &services),
    ]);
    assert!(!is_strict(mesh));
}

/// A list whose kind is misspelt may hold any object.
#[test]
fn a_list_of_a_misspelt_kind_opens_nothing() {
    let services = format!("{}---\n{}", service("web", 1), service("cart", 2));
    let p = policy("p", "DENY", "{matchLabels: {app: web}}", "cart");
    let item = p.trim().replace('\n', "\n  ");
    let list = format!("apiVersion: v1\nkind: list\nitems:\n- {item}\n");
    let mut served = Served::new();
    let mesh = served.read(&[("a.yaml", &services), ("p.yaml", &list)]);
    assert!(!calls(mesh, "shop/sa/cart", "web"));
    assert!(
        served.errors()[0].contains("write kind: List"),
        "{:?}",
        served.errors()
    );
    let list = list.replace("kind: list", "kind: List");
    let mesh = served.read(&[("a.yaml", &services), ("p.yaml", &list)]);
    assert!(!calls(mesh, "shop/sa/cart", "web") && calls(mesh, "shop/sa/other", "web"));
    assert!(served.errors().is_empty());
}
