//! Operators' commands about the Envoys of workloads.

use super::*;

const ENVOYS: &str = "
{apiVersion: v1, kind: ServiceAccount, metadata: {name: gate, namespace: shop, annotations: {heddle.dev/gateway: default}}}
---
apiVersion: heddle.dev/v1alpha1
kind: LocalWorkload
metadata: {name: lazy, namespace: shop, annotations: {heddle.dev/proxy: envoy, lazy-xds: \"true\", heddle.dev/uses: cart}}
spec: {nodeName: n1, address: 127.1.0.3}
---
apiVersion: heddle.dev/v1alpha1
kind: LocalWorkload
metadata: {name: gate, namespace: shop, annotations: {heddle.dev/proxy: envoy}}
spec: {nodeName: n1, address: 127.1.0.4, serviceAccountName: gate}
";

fn with_envoys() -> Folder {
    let folder = mesh();
    folder.write("envoys.yaml", ENVOYS);
    folder
}

#[test]
fn a_bootstrap_belongs_to_one_workload() {
    let folder = with_envoys();
    let (_control, _) = Heddle::control(&folder, &[]);
    let into = folder.path("web-envoy");
    let bootstrap = |workload: &str, into: &Path| {
        operate(
            &folder,
            &format!("envoy bootstrap {workload} --into {}", as_str(into)),
        )
    };
    let output = bootstrap("shop/lazy", &into);
    let said = text(&output.stderr);
    assert_eq!(output.status.code(), Some(0), "{said}");
    assert!(
        said.contains("only in the same network namespace"),
        "{said}"
    );
    for (file, mode) in [("envoy.json", 0o600), ("link.key", 0o600)] {
        let metadata = metadata(into.join(file)).expect("a file");
        assert_eq!(metadata.permissions().mode() & 0o777, mode, "{file}");
    }
    // It is renewed for the same workload, and not replaced by that of another one.
    let key = || std::fs::read(into.join("link.key")).expect("a key");
    let first = key();
    assert_eq!(bootstrap("shop/lazy", &into).status.code(), Some(0));
    let second = key();
    assert_ne!(first, second);
    let other = bootstrap("shop/gate", &into);
    assert_eq!(other.status.code(), Some(1));
    let said = text(&other.stderr);
    assert!(said.contains("is of the Envoy of shop/lazy"), "{said}");
    assert_eq!(key(), second);
    // A file is no folder, and a workload without an Envoy has no bootstrap.
    let file = folder.path("a-file");
    std::fs::write(&file, "").expect("a file");
    let said = text(&bootstrap("shop/lazy", &file).stderr);
    assert!(said.contains("names a folder, not a file"), "{said}");
    let said = text(&operate(&folder, "envoy bootstrap shop/web").stderr);
    assert!(
        said.contains("annotate it with heddle.dev/proxy: envoy"),
        "{said}"
    );
}

#[test]
fn envoys_and_gateways_that_are_away_are_shown() {
    let folder = with_envoys();
    let settings = folder.path("control.yaml");
    let ranges = "mesh: {address_ranges: [127.0.0.0/8]}\n";
    std::fs::write(&settings, ranges).expect("settings");
    let (control, _) = Heddle::control(&folder, &["--config", as_str(&settings)]);
    let shown = told(&folder, "status --control");
    for line in [
        "0 of 2 Envoys connected, none of 1 gateway: lazy Envoys reach only what they know",
        "not connected as a gateway: the Envoy of shop/gate",
        "shop/gate  away       all, as a gateway",
        "shop/lazy  away       what it uses",
    ] {
        assert!(shown.contains(line), "{line}: {shown}");
    }
    let status = json(&folder, "status --control");
    assert_eq!(status["envoys"][1]["workload"], "shop/lazy");
    assert_eq!(status["envoys"][1]["lazy"], true);
    assert_eq!(status["gateways"][0]["connected"], false);
    let (_, metrics) = get(control.metrics(), "x", "/metrics");
    for (name, value) in [
        ("envoys", 0),
        ("envoys_known", 2),
        ("gateways", 0),
        ("gateways_known", 1),
    ] {
        let line = format!("\nheddle_control_{name} {value}\n");
        assert!(metrics.contains(&line), "{line}");
    }
    assert!(told(&folder, "deps shop/lazy").starts_with("shop/lazy is lazy: "));
}

#[test]
fn why_an_envoy_is_not_lazy_is_said() {
    let folder = with_envoys();
    let (_control, _) = Heddle::control(&folder, &[]);
    let because = |workload: &str| told(&folder, &format!("deps {workload}"));
    assert!(because("shop/lazy").contains("mesh.address_ranges"));
    assert!(because("shop/gate").contains("it is a gateway"));
    assert!(because("shop/web").contains("its node's proxy"));
    // The account alone is no gateway.
    let (account, _) = ENVOYS.split_once("---").expect("documents");
    let lazy = ENVOYS.split("---").nth(1).expect("a workload");
    folder.write("envoys.yaml", &format!("{account}---{lazy}"));
    eventually("the gateway is gone", || {
        because("shop/lazy").contains("no gateway can be reached")
    });
}
