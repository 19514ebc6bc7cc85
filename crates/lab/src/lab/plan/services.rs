//! Services and their cluster addresses.

use std::collections::BTreeSet;
use std::net::IpAddr;

use anyhow::{Context, bail, ensure};
use heddle_model::{ServiceName, WorkloadName};
use serde_json::{Map, Value, json};

use super::numbers::Numbers;
use super::{Labels, Plan, ServicePlan};
use crate::lab::address;
use crate::lab::file::Family;
use crate::lab::manifests::Manifests;

/// Gives every Service its cluster addresses, in the plan and in the manifests.
pub(super) fn place_services(
    manifests: &mut Manifests,
    labels: &Labels,
    before: Option<&Plan>,
) -> anyhow::Result<Vec<ServicePlan>> {
    let mut services = Vec::new();
    let mut names = BTreeSet::new();
    let known = before.into_iter().flat_map(|plan| &plan.services);
    let known = known.map(|service| (service.name.clone(), service.number));
    let mut numbers: Numbers<ServiceName> = known.collect();
    manifests.each("Service", |mut object| {
        let name = ServiceName::new(&object.namespace, &object.name)?;
        ensure!(
            names.insert(name.clone()),
            "Service {name} is defined twice (rename one)"
        );
        let selector = object.texts(["spec", "selector"]);
        let selects = |of: &WorkloadName, labels: &[(String, String)]| {
            of.namespace == name.namespace
                && !selector.is_empty()
                && selector.iter().all(|label| labels.contains(label))
        };
        let pods = labels.iter().filter(|(of, labels)| selects(of, labels));
        let pods = pods.map(|(of, _)| of.clone()).collect();
        let number = numbers.of(&name);
        ensure!(
            usize::from(number) <= address::MAX_SERVICES,
            "there are more than {} Services",
            address::MAX_SERVICES
        );
        let spec = object.spec()?;
        let families = families(spec).with_context(|| format!("Service {name}"))?;
        let headless = spec.get("clusterIP").and_then(Value::as_str) == Some("None");
        let mut cluster_addresses = Vec::new();
        if !headless {
            let addresses = families.iter();
            cluster_addresses = addresses
                .map(|family| address::service(number, *family))
                .collect();
            let texts: Vec<String> = cluster_addresses.iter().map(IpAddr::to_string).collect();
            spec.insert("clusterIP".to_owned(), json!(texts[0]));
            spec.insert("clusterIPs".to_owned(), json!(texts));
        }
        services.push(ServicePlan {
            name,
            cluster_addresses,
            families,
            pods,
            number,
        });
        Ok(())
    })?;
    services.sort_by(|one, other| one.name.cmp(&other.name));
    Ok(services)
}

/// The families of a Service, by the rules of a dual-stack cluster, except that a Service that specifies none has
/// both, since a lab is for experiments.
pub(super) fn families(spec: &Map<String, Value>) -> anyhow::Result<Vec<Family>> {
    let mut families = Vec::new();
    let written = spec.get("ipFamilies").and_then(Value::as_array);
    for (position, family) in written.into_iter().flatten().enumerate() {
        let family = match family.as_str() {
            Some("IPv4") => Family::V4,
            Some("IPv6") => Family::V6,
            _ => bail!("spec.ipFamilies[{position}]: {family} is invalid, expected IPv4 or IPv6"),
        };
        if !families.contains(&family) {
            families.push(family);
        }
    }
    let single = match spec.get("ipFamilyPolicy").and_then(Value::as_str) {
        Some("SingleStack") => true,
        Some("PreferDualStack" | "RequireDualStack") => false,
        Some(other) => bail!(
            "spec.ipFamilyPolicy: {other:?} is not a policy, expected SingleStack, PreferDualStack or RequireDualStack"
        ),
        None => families.len() == 1,
    };
    if families.is_empty() {
        families.push(Family::V4);
    }
    match single {
        true => families.truncate(1),
        false => {
            let others = address::FAMILIES.into_iter();
            let missing: Vec<Family> = others.filter(|family| !families.contains(family)).collect();
            families.extend(missing);
        }
    }
    Ok(families)
}
