//! Cluster IPs: an intercepted connection to one of these addresses is one to the Service.

use std::collections::BTreeMap;
use std::net::IpAddr;

use heddle_model::{Service, ServiceName};

use super::Scope;
use super::index::Index;
use crate::check;
use crate::findings::Findings;
use crate::manifest::Object;
use crate::manifest::core::ServiceSpec;
use crate::manifest::node::FieldPath;
use crate::{Addresses, Options};

/// Limit of addresses of one Service: one of each family.
const MAX_ADDRESSES: usize = 2;
/// The value that requests a Service without an address.
const NONE: &str = "None";

/// Reads the addresses of every Service; where a lab assigns addresses, whether the Service gets one.
pub(super) fn compile(
    index: &Index<'_>,
    services: &mut [Service],
    options: &Options,
    findings: &mut Findings,
) {
    let mut owners: BTreeMap<IpAddr, (&ServiceName, &Object)> = BTreeMap::new();
    let known = services.iter_mut().filter_map(|service| {
        let (name, (object, body)) = index.services.get_key_value(&service.name)?;
        Some((service, name, *object, *body))
    });
    // Of two with one address the senior one has it.
    let mut known: Vec<_> = known.collect();
    known.sort_by_cached_key(|(_, _, object, _)| object.written.seniority());
    for (service, name, object, body) in known {
        let mut scope = Scope::of(object, findings);
        let written = written(&body.spec, &mut scope);
        service.headless = written.iter().any(|(_, text)| *text == NONE);
        if options.addresses == Addresses::Given {
            continue;
        }
        for (at, text) in written {
            if text == NONE {
                continue;
            }
            if service.headless {
                let reason = format!("{text} beside None: a headless Service has no address");
                scope.error(&at, reason, "remove one of them");
                continue;
            }
            let address = scope.check(&at, check::cluster_address(text));
            let address = address.and_then(|one| scope.within(&at, one, options));
            let Some(address) = address else {
                continue;
            };
            match owners.insert(address, (name, object)) {
                None => service.addresses.push(address),
                // The same address in both fields.
                Some((other, _)) if other == name => {}
                Some((other, first)) => {
                    let first = &first.written;
                    let reason = format!(
                        "Service {other} has {address} already, in {}",
                        first.begins()
                    );
                    scope.error(&at, reason, "give one of them another address");
                }
            }
        }
        service.addresses.sort_unstable();
    }
}

/// The value of either field, and its path. An ExternalName has no address whatever it says.
fn written<'s>(spec: &'s ServiceSpec, scope: &mut Scope<'_>) -> Vec<(FieldPath, &'s str)> {
    if spec.kind.as_deref() == Some("ExternalName") {
        return Vec::new();
    }
    let at = FieldPath::of("spec");
    let one = spec.cluster_ip.as_deref().unwrap_or_default();
    let list = scope.at_most(&at.field("clusterIPs"), &spec.cluster_ips, MAX_ADDRESSES);
    if let Some(first) = list
        .first()
        .filter(|first| !one.is_empty() && *first != one)
    {
        let reason = format!("{first:?} is first here, and clusterIP is {one:?}");
        let remedy = "write the same address in both, or clusterIP alone";
        scope.error(&at.field("clusterIPs").index(0), reason, remedy);
        return Vec::new();
    }
    let one = (at.field("clusterIP"), one);
    let all = list.iter().enumerate();
    let all = all.map(|(i, text)| (at.field("clusterIPs").index(i), text.as_str()));
    // The API server treats an empty value as not assigned yet.
    let written = std::iter::once(one).chain(all);
    written.filter(|(_, text)| !text.is_empty()).collect()
}
