//! A small certificate authority for tests.

#![allow(
    clippy::unwrap_used,
    clippy::missing_panics_doc,
    clippy::new_without_default,
    missing_docs,
    reason = "in a test a panic is the message"
)]

pub mod stock;

use std::sync::Arc;

use heddle_model::{
    NODE_NAME_OID, NODE_UNIT, NodeName, ServiceAccountName, SpiffeId, Subject, TrustDomain,
};
use rcgen::{
    BasicConstraints, CertificateParams, DistinguishedName, DnType, ExtendedKeyUsagePurpose, IsCa,
    Issuer, KeyPair, KeyUsagePurpose, SanType,
};
use time::OffsetDateTime;
use zeroize::Zeroizing;

use crate::{Clock, Denied, Identities, Leaf, Trust};

/// The time of the clock in tests, in seconds since 1970.
pub const NOW: u64 = 1_800_000_000;
pub const DAY: u64 = 86_400;

/// The node for which leaves are marked by default.
pub const NODE: &str = "edge-1";

/// Marks a certificate's subject: this node holds its key.
pub fn mark(subject: &mut DistinguishedName, node: &str) {
    subject.push(DnType::OrganizationalUnitName, NODE_UNIT);
    subject.push(DnType::CustomDnType(NODE_NAME_OID.to_vec()), node);
}

pub fn domain() -> TrustDomain {
    TrustDomain::parse("mesh.test").unwrap()
}

pub fn account(name: &str) -> ServiceAccountName {
    ServiceAccountName::new("shop", name).unwrap()
}

pub fn id(name: &str) -> SpiffeId {
    SpiffeId::workload(domain(), account(name))
}

pub struct Authority {
    issuer: Issuer<'static, KeyPair>,
    pub root: Vec<u8>,
}

fn at(seconds: u64) -> OffsetDateTime {
    OffsetDateTime::from_unix_timestamp(i64::try_from(seconds).unwrap()).unwrap()
}

impl Authority {
    pub fn new() -> Authority {
        let key = KeyPair::generate().unwrap();
        let mut params = CertificateParams::default();
        params.is_ca = IsCa::Ca(BasicConstraints::Constrained(1));
        params.key_usages = vec![KeyUsagePurpose::KeyCertSign];
        params.not_before = at(NOW - 100 * DAY);
        params.not_after = at(NOW + 1000 * DAY);
        let root = params.self_signed(&key).unwrap().der().to_vec();
        Authority {
            issuer: Issuer::new(params, key),
            root,
        }
    }

    /// A leaf with these URIs, valid from `from` until `until`, marked for [`NODE`].
    pub fn sign(&self, uris: &[&str], from: u64, until: u64) -> (Vec<u8>, Zeroizing<Vec<u8>>) {
        self.sign_for(Some(NODE), uris, from, until)
    }

    /// The same, marked for `node`, or unmarked as for a program that is no node.
    pub fn sign_for(
        &self,
        node: Option<&str>,
        uris: &[&str],
        from: u64,
        until: u64,
    ) -> (Vec<u8>, Zeroizing<Vec<u8>>) {
        let key = KeyPair::generate().unwrap();
        let mut params = CertificateParams::default();
        params.subject_alt_names = uris
            .iter()
            .map(|uri| SanType::URI((*uri).try_into().unwrap()))
            .collect();
        params.distinguished_name = DistinguishedName::new();
        if let Some(node) = node {
            mark(&mut params.distinguished_name, node);
        }
        params.not_before = at(from);
        params.not_after = at(until);
        params.extended_key_usages = vec![
            ExtendedKeyUsagePurpose::ServerAuth,
            ExtendedKeyUsagePurpose::ClientAuth,
        ];
        let certificate = params.signed_by(&key, &self.issuer).unwrap();
        let key = Zeroizing::new(key.serialize_der());
        (certificate.der().to_vec(), key)
    }

    pub fn leaf(&self, id: &SpiffeId, from: u64, until: u64) -> Arc<Leaf> {
        let node = match &id.subject {
            Subject::Node(node) => Some(node.as_str()),
            Subject::Workload(_) => Some(NODE),
            Subject::Control | Subject::Envoy(_) => None,
        };
        self.leaf_for(node, id, from, until)
    }

    /// A leaf marked for `node`, or unmarked as for a program that is no node.
    pub fn leaf_for(&self, node: Option<&str>, id: &SpiffeId, from: u64, until: u64) -> Arc<Leaf> {
        let (certificate, key) = self.sign_for(node, &[&id.to_string()], from, until);
        Arc::new(Leaf::new(vec![certificate], &key).unwrap())
    }

    pub fn usual(&self, name: &str) -> Arc<Leaf> {
        self.leaf(&id(name), NOW - DAY, NOW + DAY)
    }

    pub fn trust(&self, denied: Denied) -> Arc<Trust> {
        let roots = [self.root.clone()];
        Arc::new(Trust::new(domain(), &roots, denied).unwrap())
    }

    /// A node that trusts this authority and has these leaves.
    pub fn node(&self, leaves: &[Arc<Leaf>]) -> Identities {
        self.node_with(self.trust(Denied::default()), clock(), leaves)
    }

    pub fn node_with(
        &self,
        trust: Arc<Trust>,
        clock: Arc<Clock>,
        leaves: &[Arc<Leaf>],
    ) -> Identities {
        let node = SpiffeId::node(domain(), NodeName::parse(NODE).unwrap());
        let node = self.leaf(&node, NOW - DAY, NOW + DAY);
        Identities::new(trust, clock, node, leaves.iter().cloned()).unwrap()
    }
}

pub fn clock() -> Arc<Clock> {
    Arc::new(Clock::with(0, || NOW))
}
