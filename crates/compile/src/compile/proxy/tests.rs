use heddle_model::report::Severity;
use heddle_model::{MAX_GATEWAY_ACCOUNTS, Mesh, Proxy, WorkloadName};

use crate::{Options, load_with};

const LAZY: Proxy = Proxy::Envoy { lazy: true };
const EAGER: Proxy = Proxy::Envoy { lazy: false };

fn manifests(namespace: &str, workload: &str) -> String {
    format!(
        "apiVersion: v1
kind: Namespace
metadata: {{name: shop, annotations: {{{namespace}}}}}
---
apiVersion: heddle.dev/v1alpha1
kind: LocalWorkload
metadata: {{name: web, namespace: shop, labels: {{app: web}}, annotations: {{{workload}}}}}
spec: {{address: 127.1.0.1, ports: [{{port: 80}}]}}
---
apiVersion: v1
kind: Service
metadata: {{name: web, namespace: shop}}
spec: {{selector: {{app: web}}, ports: [{{port: 80}}]}}
"
    )
}

fn compiled(namespace: &str, workload: &str, options: &Options) -> Result<Mesh, String> {
    let dir = tempfile::tempdir().expect("a folder");
    let file = dir.path().join("a.yaml");
    std::fs::write(file, manifests(namespace, workload)).expect("a manifest");
    let (mesh, report) = load_with(dir.path(), options);
    let problems = report.problems.iter().map(ToString::to_string);
    mesh.ok_or_else(|| problems.collect::<Vec<_>>().join("\n"))
}

fn proxy(namespace: &str, workload: &str, options: &Options) -> Proxy {
    let mesh = compiled(namespace, workload, options).expect("a mesh");
    let name = WorkloadName::parse("shop/web").expect("a name");
    let proxy = mesh.workload(&name).expect("the workload").proxy;
    let mut endpoints = mesh.services.iter().flat_map(|service| service.endpoints());
    assert!(endpoints.all(|endpoint| endpoint.has_envoy == proxy.is_envoy()));
    proxy
}

#[test]
fn the_workload_then_its_namespace_then_the_mesh_says_whether_its_envoy_is_lazy() {
    let eager = Options::default();
    let lazy = Options {
        lazy_envoys: true,
        ..Options::default()
    };
    let envoy = "heddle.dev/proxy: envoy";
    let (yes, no) = ("lazy-xds: 'true'", "lazy-xds: 'false'");
    for (namespace, workload, options, expected) in [
        ("", "", &lazy, Proxy::Node),
        (yes, yes, &lazy, Proxy::Node),
        ("", "heddle.dev/proxy: node", &lazy, Proxy::Node),
        ("", envoy, &eager, EAGER),
        ("", envoy, &lazy, LAZY),
        (yes, envoy, &eager, LAZY),
        (no, envoy, &lazy, EAGER),
        (no, &format!("{envoy}, {yes}"), &eager, LAZY),
        (yes, &format!("{envoy}, {no}"), &lazy, EAGER),
    ] {
        let found = proxy(namespace, workload, options);
        assert_eq!(found, expected, "{namespace:?}, {workload:?}");
    }
}

#[test]
fn a_workload_declares_services_of_its_own_namespace_and_of_others() {
    let uses = |text: &str| {
        let workload = format!("heddle.dev/proxy: envoy, heddle.dev/uses: {text:?}");
        let mesh = compiled("", &workload, &Options::default())?;
        let name = WorkloadName::parse("shop/web").expect("a name");
        let uses = &mesh.workload(&name).expect("the workload").uses;
        Ok(uses.iter().map(ToString::to_string).collect::<Vec<_>>())
    };
    for (text, expected) in [
        ("", &[][..]),
        ("api", &["shop/api"]),
        (" cart, bill/db ,cart,", &["bill/db", "shop/cart"]),
    ] {
        assert_eq!(
            uses(text),
            Ok(expected.iter().map(ToString::to_string).collect()),
            "{text:?}"
        );
    }
    for wrong in ["A", "a b", "a/b/c", "/a", "a/"] {
        let why: String = uses(wrong).expect_err("it is no Service");
        assert!(
            why.contains("heddle.dev/uses") && why.contains("is no Service"),
            "{why}"
        );
    }
    let many: Vec<String> = (0..257).map(|number| format!("s{number}")).collect();
    let why = uses(&many.join(",")).expect_err("they are too many");
    assert!(why.contains("too many"), "{why}");
    let why = uses(&"A,".repeat(10_000)).expect_err("they are too many");
    assert_eq!(why.matches("heddle.dev/uses").count(), 1, "{why}");
}

#[test]
fn a_mesh_has_a_bounded_number_of_gateway_accounts() {
    let dir = tempfile::tempdir().expect("a folder");
    let gateways = |count: usize| {
        let accounts = (0..count).map(|number| {
            format!(
                "apiVersion: v1
kind: ServiceAccount
metadata: {{name: g{number:03}, namespace: shop, annotations: {{heddle.dev/gateway: default}}}}
---
"
            )
        });
        let text: String = accounts.collect();
        std::fs::write(dir.path().join("a.yaml"), text).expect("manifests");
        let (mesh, report) = load_with(dir.path(), &Options::default());
        let errors = report.problems.iter();
        let errors = errors.filter(|problem| problem.severity == Severity::Error);
        let problems = errors.map(ToString::to_string);
        mesh.map(|mesh| mesh.forwarding.gateways.len())
            .ok_or_else(|| problems.collect::<Vec<_>>())
    };
    assert_eq!(gateways(MAX_GATEWAY_ACCOUNTS), Ok(MAX_GATEWAY_ACCOUNTS));
    let why = gateways(MAX_GATEWAY_ACCOUNTS + 1).expect_err("one is too many");
    assert_eq!(why.len(), 1, "{why:?}");
    assert!(
        why[0].contains("g064") && why[0].contains("at most 64"),
        "{why:?}"
    );
}

#[test]
fn what_is_no_proxy_and_neither_true_nor_false_is_refused() {
    for (namespace, workload, said) in [
        ("", "heddle.dev/proxy: envoi", "\"envoi\" is no proxy"),
        ("", "heddle.dev/proxi: envoy", "heddle.dev/proxi"),
        ("", "lazy-xds: 'yes'", "neither true nor false"),
        ("lazy-xds: ''", "", "neither true nor false"),
    ] {
        let refused = compiled(namespace, workload, &Options::default());
        let why = refused.expect_err("it is wrong");
        assert!(why.contains(said), "{why}");
    }
}

/// What is said of a folder with this workload, and with this ServiceAccount.
fn warnings(workload: &str, account: &str, options: &Options) -> Vec<String> {
    let dir = tempfile::tempdir().expect("a folder");
    let account = format!(
        "---
apiVersion: v1
kind: ServiceAccount
metadata: {{name: gate, namespace: shop, annotations: {{{account}}}}}
"
    );
    let manifests = manifests("", workload) + &account;
    std::fs::write(dir.path().join("a.yaml"), manifests).expect("a manifest");
    let (mesh, report) = load_with(dir.path(), options);
    assert!(mesh.is_some(), "{:?}", report.problems);
    let problems = report.problems.iter();
    problems.map(|problem| problem.reason.clone()).collect()
}

#[test]
fn what_has_no_effect_is_warned_of() {
    let lab = Options {
        addresses: crate::Addresses::Given,
        ..Options::default()
    };
    let (envoy, lazy) = (
        "heddle.dev/proxy: envoy",
        "heddle.dev/proxy: envoy, lazy-xds: 'true'",
    );
    for (workload, account, options, said) in [
        (envoy, "", &lab, &[][..]),
        (
            envoy,
            "",
            &Options::default(),
            &["heddle up serves no Envoys"],
        ),
        (
            "lazy-xds: 'true'",
            "",
            &lab,
            &["lazy-xds is for workloads with an Envoy"],
        ),
        (
            "heddle.dev/uses: api",
            "",
            &lab,
            &["heddle.dev/uses is for workloads with an Envoy"],
        ),
        (lazy, "", &lab, &["there is no gateway"]),
        (
            lazy,
            "heddle.dev/gateway: default",
            &lab,
            &["no workload has this account"],
        ),
        (
            envoy,
            "heddle.dev/gateway: default, heddle.dev/registry: allow",
            &lab,
            &[],
        ),
    ] {
        let warnings = warnings(workload, account, options);
        assert_eq!(
            warnings.len(),
            said.len(),
            "{workload}, {account}: {warnings:?}"
        );
        for (warning, begins) in warnings.iter().zip(said) {
            assert!(warning.starts_with(begins), "{warning}");
        }
    }
}
