use heddle_model::{NodeName, WorkloadName};

use super::*;
use crate::lab::plan::NodePlan;
use crate::lab::{Carried, Hooks, LabName, Restart};

fn pod(name: &str, addresses: &[&str]) -> PodPlan {
    PodPlan {
        workload: WorkloadName::parse(name).unwrap(),
        node: NodeName::parse("two").unwrap(),
        mesh_node: NodeName::parse("two").unwrap(),
        addresses: addresses.iter().map(|text| text.parse().unwrap()).collect(),
        number: 1,
        cpus: None,
        enrolled: true,
        has_envoy: false,
        ports: Vec::new(),
        command: None,
    }
}

fn plan() -> Plan {
    let nodes = ["one", "two"].map(|name| NodeName::parse(name).unwrap());
    Plan {
        name: LabName::parse("shop").unwrap(),
        carried: Carried::Nothing,
        hooks: Hooks::Auto,
        restart: Restart::Always,
        settings: None,
        nodes: nodes.into_iter().zip(1..).map(NodePlan::from).collect(),
        pods: Vec::new(),
        services: Vec::new(),
        warnings: Vec::new(),
        manifests: None,
    }
}

#[test]
fn a_pod_asks_its_node_in_the_families_that_it_has() {
    let rest = "search shop.svc.cluster.local svc.cluster.local cluster.local\noptions ndots:5\n";
    for (addresses, servers) in [
        (
            &["10.2.1.1", "fd68:6c:0:2::1"][..],
            "nameserver 10.250.2.1\nnameserver fd68:6c:fa:2::1\n",
        ),
        (&["fd68:6c:0:2::1"], "nameserver fd68:6c:fa:2::1\n"),
    ] {
        let text = resolv_conf(&plan(), &pod("shop/web", addresses));
        assert_eq!(text, format!("{servers}{rest}"));
    }
}

#[test]
fn a_pod_knows_its_own_name() {
    let text = hosts(&pod("shop/web", &["10.2.1.1"]));
    assert!(text.ends_with("\n10.2.1.1 web\n"), "{text}");
    let long = format!("shop/{}.{}", "a".repeat(62), "b".repeat(60));
    assert_eq!(hostname(&pod(&long, &["10.2.1.1"])), "a".repeat(62));
}
