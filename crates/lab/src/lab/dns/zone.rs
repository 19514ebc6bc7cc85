//! The names of a lab and their addresses.

use std::collections::{BTreeMap, HashMap};
use std::net::IpAddr;

use anyhow::Context;
use heddle_model::WorkloadName;
use hickory_proto::rr::{LowerName, Name};

use crate::lab::file::Carried;
use crate::lab::plan::{Plan, PodPlan, ServicePlan};

/// Suffix of all names of a cluster.
const CLUSTER: &str = "cluster.local.";

/// Every name below `cluster.local`. A name that exists only as a parent of others has no address.
#[derive(Debug)]
pub(super) struct Zone {
    apex: Name,
    lower_apex: LowerName,
    names: HashMap<LowerName, Vec<IpAddr>>,
}

/// Result of a lookup.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Known<'z> {
    /// Its addresses of both families; empty for a name that is only a parent.
    Here(&'z [IpAddr]),
    /// The zone has no such name.
    Nowhere,
    /// It is not below `cluster.local`.
    Elsewhere,
}

impl Zone {
    /// The names of a plan: each Service with its cluster addresses. A headless Service has the addresses of its
    /// pods, as has every Service of a lab without a mesh, where no proxy serves cluster addresses; each of these
    /// pods has a name below its Service's.
    ///
    /// # Errors
    /// A name is too long for DNS.
    pub(in crate::lab) fn of(plan: &Plan) -> anyhow::Result<Self> {
        let apex = Name::from_ascii(CLUSTER)?;
        let pods: BTreeMap<&WorkloadName, &PodPlan> =
            plan.pods.iter().map(|pod| (&pod.workload, pod)).collect();
        let mut zone = Self {
            lower_apex: LowerName::new(&apex),
            apex,
            names: HashMap::new(),
        };
        zone.add(CLUSTER, Vec::new())?;
        zone.add(&format!("svc.{CLUSTER}"), Vec::new())?;
        for service in &plan.services {
            let namespace = format!("{}.svc.{CLUSTER}", service.name.namespace);
            zone.add(&namespace, Vec::new())?;
            let name = format!("{}.{namespace}", service.name.name);
            let by_pods = service.cluster_addresses.is_empty() || plan.carried == Carried::Nothing;
            if !by_pods {
                zone.add(&name, service.cluster_addresses.clone())?;
                continue;
            }
            let pods: Vec<&PodPlan> = service
                .pods
                .iter()
                .filter_map(|of| pods.get(of).copied())
                .collect();
            let all = pods.iter().flat_map(|pod| addresses(pod, service));
            zone.add(&name, all.collect())?;
            for pod in pods {
                let own = format!("{}.{name}", pod.workload.name);
                zone.add(&own, addresses(pod, service).collect())?;
            }
        }
        Ok(zone)
    }

    fn add(&mut self, name: &str, addresses: Vec<IpAddr>) -> anyhow::Result<()> {
        let parsed = Name::from_ascii(name).with_context(|| format!("{name} is not a DNS name"))?;
        let known = self.names.entry(LowerName::new(&parsed)).or_default();
        known.extend(addresses);
        Ok(())
    }

    pub(super) fn apex(&self) -> &Name {
        &self.apex
    }

    pub(super) fn len(&self) -> usize {
        self.names.len()
    }

    pub(super) fn look_up(&self, name: &LowerName) -> Known<'_> {
        if !self.lower_apex.zone_of(name) {
            return Known::Elsewhere;
        }
        match self.names.get(name) {
            Some(addresses) => Known::Here(addresses),
            None => Known::Nowhere,
        }
    }
}

/// The addresses of a pod in the families of its Service.
fn addresses<'p>(pod: &'p PodPlan, service: &'p ServicePlan) -> impl Iterator<Item = IpAddr> + 'p {
    let families = service.families.iter();
    families.filter_map(|family| pod.address(*family))
}
