//! Checks that there are gateways where Envoys are lazy.

use std::collections::BTreeSet;

use heddle_model::{Proxy, ServiceAccountName, Workload};

use super::Scope;
use super::index::{Index, REGISTRY_ANNOTATION};
use super::proxy::{GATEWAY, LAZY};
use crate::findings::Findings;
use crate::manifest::node::FieldPath;

/// Warns of gateways without a workload, and of lazy Envoys in a mesh without gateways: these are told everything.
pub(super) fn check(index: &Index<'_>, workloads: &[Workload], findings: &mut Findings) {
    let at = |annotation: &str| FieldPath::of("metadata.annotations").field(annotation);
    let accounts: BTreeSet<&ServiceAccountName> =
        workloads.iter().map(|one| &one.service_account).collect();
    for (account, object) in &index.gateways {
        // Providers that register may come at any time.
        let may_register = object
            .metadata
            .annotations
            .contains_key(REGISTRY_ANNOTATION);
        if !accounts.contains(account) && !may_register {
            Scope::of(object, findings).warn(
                &at(GATEWAY),
                "no workload has this account: it is no gateway yet",
                "name it in spec.serviceAccountName of a LocalWorkload with an Envoy, or on a node",
            );
        }
    }
    if !index.gateways.is_empty() {
        return;
    }
    let lazy = workloads
        .iter()
        .filter(|one| one.proxy == Proxy::Envoy { lazy: true });
    for workload in lazy {
        let Some((object, _)) = index.workloads.get(&workload.name) else {
            continue;
        };
        if object.metadata.annotations.contains_key(LAZY) {
            Scope::of(object, findings).warn(
                &at(LAZY),
                "there is no gateway: the Envoy is told everything",
                "annotate the ServiceAccount of a gateway with heddle.dev/gateway: default",
            );
        }
    }
}
