//! What is said of Envoys, and of the gateways of lazy ones.

use heddle_control::Envoys;
use heddle_envoy::gateways;
use heddle_model::{Mesh, Proxy, Workload};

use crate::order::{EnvoyStatus, GatewayStatus};

/// All workloads with an Envoy, and all gateways.
pub(super) fn status(mesh: &Mesh, envoys: &Envoys) -> (Vec<EnvoyStatus>, Vec<GatewayStatus>) {
    let connected = envoys.connected();
    let has_gateways = !gateways(mesh).is_empty();
    let with_envoy = mesh.workloads.iter().filter(|one| one.proxy.is_envoy());
    let envoys = with_envoy.map(|workload| {
        let here = connected.get(&workload.name);
        EnvoyStatus {
            workload: workload.name.to_string(),
            connected_s: here.map(|here| here.since.elapsed().as_secs()),
            certificate_until: here.map(|here| here.until),
            lazy: why_not_lazy(mesh, workload, has_gateways).is_none(),
        }
    });
    let accounts = &mesh.forwarding.gateways;
    let of_gateways = mesh.workloads.iter();
    let of_gateways = of_gateways.filter(|one| accounts.contains(&one.service_account));
    let gateways = of_gateways.map(|workload| {
        let node = match mesh.forwarding.is_at(workload) {
            true => workload.node.as_ref(),
            false => None,
        };
        GatewayStatus {
            workload: workload.name.to_string(),
            node: node.map(ToString::to_string),
            connected: match workload.proxy.is_envoy() {
                true => connected.contains_key(&workload.name),
                false => node.is_some_and(|node| mesh.node(node).is_some()),
            },
        }
    });
    (envoys.collect(), gateways.collect())
}

/// Why the Envoy of a workload knows everything; `None` if it is lazy.
pub(super) fn why_not_lazy(
    mesh: &Mesh,
    workload: &Workload,
    has_gateways: bool,
) -> Option<&'static str> {
    let account = &workload.service_account;
    match workload.proxy {
        Proxy::Node => Some("its node's proxy carries its traffic"),
        _ if mesh.forwarding.gateways.contains(account) => Some("it is a gateway"),
        Proxy::Envoy { lazy: false } => Some("it is not annotated with lazy-xds"),
        _ if mesh.forwarding.is_empty() => Some(
            "there is no gateway (annotate the ServiceAccount of a workload with heddle.dev/gateway: default)",
        ),
        _ if !has_gateways => Some(
            "no gateway can be reached (a workload of its account has to have an Envoy, or to be on a node that is \
             connected)",
        ),
        _ if mesh.address_ranges.is_empty() => {
            Some("the settings do not say which addresses the mesh has (mesh.address_ranges)")
        }
        Proxy::Envoy { lazy: true } => None,
    }
}
