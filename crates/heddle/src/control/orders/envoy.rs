//! Orders about Envoys.

use std::collections::BTreeSet;
use std::time::Duration;

use heddle_envoy::gateways;
use heddle_model::calendar::utc;
use heddle_model::{Proxy, ServiceName, SpiffeId, WorkloadName};
use heddle_transport::secrets::pem;
use rustls::pki_types::CertificateDer;

use super::{Done, Orders, answer, refused};
use crate::control::envoys::why_not_lazy;
use crate::order::{DependenciesStatus, DependencyStatus, EnvoyLinked};

/// Bounds of the life of the certificate with which an Envoy connects.
const MIN_LIFE: Duration = Duration::from_secs(3_600);
const MAX_LIFE: Duration = Duration::from_secs(90 * 86_400);

impl Orders<'_> {
    /// Issues the certificate with which the Envoy of a workload connects.
    pub(super) fn link_envoy(&self, workload: &str, ttl_s: u64) -> Done {
        let name = WorkloadName::parse(workload).map_err(refused)?;
        let life = Duration::from_secs(ttl_s);
        if !(MIN_LIFE..=MAX_LIFE).contains(&life) {
            return Err(refused(
                "the certificate of an Envoy lives for an hour to 90 days (choose a time between)",
            ));
        }
        let mesh = self.board.newest();
        let known = mesh.as_ref().and_then(|mesh| mesh.workload(&name));
        match known.map(|known| known.proxy) {
            Some(Proxy::Envoy { .. }) => {}
            Some(Proxy::Node) => {
                return Err(refused(format!(
                    "{name} has no Envoy: its node's proxy carries its traffic (annotate it with \
                     heddle.dev/proxy: envoy)"
                )));
            }
            None => {
                return Err(refused(format!(
                    "there is no workload {name} (write NAMESPACE/NAME of a LocalWorkload; one without nodeName is on no node, \
                     see `heddle status --control`)"
                )));
            }
        }
        let id = SpiffeId::envoy(self.authority.trust_domain().clone(), name.clone());
        let denied = self.authority.trust().denied;
        if denied.denies(&id, None, self.now).is_some() {
            return Err(refused(format!(
                "the Envoy of {name} is on the deny-list (first `heddle deny remove {id}`)"
            )));
        }
        let issued = self.authority.issue_with_key(&id, life, self.now);
        let (issued, key_pem) = issued.map_err(refused)?;
        tracing::info!(workload = %name, until = utc(issued.not_after), "a certificate for an Envoy was issued");
        answer(&EnvoyLinked {
            workload: name.to_string(),
            trust_domain: self.authority.trust_domain().to_string(),
            chain_pem: certificates(&issued.chain),
            key_pem,
            roots_pem: certificates(&self.authority.trust().bundle.roots),
            not_after: issued.not_after,
            listen: self.listen,
        })
    }
}

impl Orders<'_> {
    /// Lists what a workload depends on.
    pub(super) fn dependencies(&self, workload: &str) -> Done {
        let name = WorkloadName::parse(workload).map_err(refused)?;
        let mesh = self.board.newest().unwrap_or_default();
        let Some(known) = mesh.workload(&name) else {
            return Err(refused(format!(
                "there is no workload {name} (write NAMESPACE/NAME of a LocalWorkload)"
            )));
        };
        let account = &known.service_account;
        let because = why_not_lazy(&mesh, known, !gateways(&mesh).is_empty());
        let learned = self.envoys.uses(account);
        let all: BTreeSet<&ServiceName> = learned.keys().chain(&known.uses).collect();
        let dependencies = all.into_iter().map(|service| {
            let (cost, used) = (self.envoys.cost(service), learned.get(service));
            DependencyStatus {
                exists: mesh.service(service).is_some(),
                service: service.to_string(),
                declared: known.uses.contains(service),
                learned: used.map(|used| used.learned),
                used: used.map(|used| used.used),
                resources: cost.resources,
                bytes: cost.bytes,
            }
        });
        answer(&DependenciesStatus {
            workload: name.to_string(),
            account: account.to_string(),
            lazy: because.is_none(),
            because: because.map(str::to_owned),
            dependencies: dependencies.collect(),
        })
    }
}

fn certificates(chain: &[CertificateDer<'static>]) -> String {
    let sections = chain.iter();
    let sections = sections.map(|der| pem::encode("CERTIFICATE", der).to_string());
    sections.collect()
}
