//! The server name by which a stock proxy, such as an Envoy, asks a node for a port of a Service, or for its gateway.
//!
//! A stock proxy cannot name its destination in a preface, as nodes do among each other. It names it in TLS (RFC 6066
//! section 3), before the server name of the identity that has to answer:
//!
//! ```text
//!   80.reviews.shop.svc.reviews.shop.sa.cluster.local
//!   PORT.SERVICE.NAMESPACE.svc.<server name of the service account>
//!   gateway.svc.<server name of the gateway's service account>
//! ```

use crate::{ServiceAccountName, ServiceName, SpiffeId, TrustDomain, is_dns_subdomain};

#[cfg(test)]
mod tests;

/// Between what is called and the identity that answers. The first one in a name counts.
const MARK: &str = ".svc.";

/// What asks for a gateway.
const GATEWAY: &str = "gateway";

/// What a stock proxy asks a node for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum StockDestination {
    /// A port of a Service.
    Port(StockName),
    /// A gateway with this account, which forwards to any destination.
    Gateway(ServiceAccountName),
}

impl StockDestination {
    /// Reads the name in TLS: every name has one spelling only.
    pub fn parse(trust_domain: &TrustDomain, sni: &str) -> Option<Self> {
        match sni.split_once(MARK)? {
            (GATEWAY, identity) => {
                let id = SpiffeId::from_server_name(trust_domain, identity)?;
                let account = id.service_account()?.clone();
                (Self::gateway(trust_domain, &account)? == sni).then_some(Self::Gateway(account))
            }
            _ => StockName::parse(trust_domain, sni).map(Self::Port),
        }
    }

    /// The name in TLS of the gateways with an account; `None` if it would be too long for DNS.
    pub fn gateway(trust_domain: &TrustDomain, account: &ServiceAccountName) -> Option<String> {
        let id = SpiffeId::workload(trust_domain.clone(), account.clone());
        let sni = format!("{GATEWAY}{MARK}{}", id.server_name()?);
        is_dns_subdomain(&sni).then_some(sni)
    }
}

/// A port of a Service, and the service account that its endpoint has to prove.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct StockName {
    pub service: ServiceName,
    pub port: u16,
    pub account: ServiceAccountName,
}

impl StockName {
    /// The name in TLS. `None` if it would be too long for DNS, or would be read as another one: a Service's name must
    /// not have the label `svc`.
    pub fn to_sni(&self, trust_domain: &TrustDomain) -> Option<String> {
        let ServiceName { namespace, name } = &self.service;
        let id = SpiffeId::workload(trust_domain.clone(), self.account.clone());
        let sni = format!(
            "{}.{name}.{namespace}{MARK}{}",
            self.port,
            id.server_name()?
        );
        (StockName::parse(trust_domain, &sni).as_ref() == Some(self)).then_some(sni)
    }

    /// The inverse of [`StockName::to_sni`]: every name has one spelling only.
    pub fn parse(trust_domain: &TrustDomain, sni: &str) -> Option<Self> {
        if !is_dns_subdomain(sni) {
            return None;
        }
        let (called, identity) = sni.split_once(MARK)?;
        let (port, service) = called.split_once('.')?;
        let (name, namespace) = service.rsplit_once('.')?;
        let is_plain = port.bytes().all(|byte| byte.is_ascii_digit()) && !port.starts_with('0');
        let id = SpiffeId::from_server_name(trust_domain, identity)?;
        Some(StockName {
            service: ServiceName::new(namespace, name).ok()?,
            port: port.parse().ok().filter(|_| is_plain)?,
            account: id.service_account()?.clone(),
        })
    }

    /// The part of a name that asks for an identity: all that follows the first `.svc.`.
    pub fn identity_of(sni: &str) -> Option<&str> {
        sni.split_once(MARK).map(|(_, identity)| identity)
    }
}
