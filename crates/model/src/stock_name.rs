//! The server name by which a stock Envoy asks for a Service's port.

use crate::{ServiceAccountName, ServiceName, SpiffeId, TrustDomain};

/// A Service's port, and the identity that its server proves.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct StockName {
    pub service: ServiceName,
    pub port: u16,
    pub account: ServiceAccountName,
}

impl StockName {
    /// `PORT.SERVICE.NAMESPACE.svc.ACCOUNT.NAMESPACE.sa.TRUST-DOMAIN`.
    pub fn to_sni(&self, trust_domain: &TrustDomain) -> Option<String> {
        let id = SpiffeId::workload(trust_domain.clone(), self.account.clone());
        let ServiceName { namespace, name } = &self.service;
        let sni = format!("{}.{name}.{namespace}.svc.{}", self.port, id.server_name()?);
        (sni.len() <= 253).then_some(sni)
    }
}
