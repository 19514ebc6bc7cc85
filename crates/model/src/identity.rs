//! Identities: they identify a workload independently of its address.
//!
//! An identity is a SPIFFE id (SPIFFE-ID standard, section 2): a URI whose authority is the trust domain and whose path
//! names the subject.
//!
//! | subject | SPIFFE id |
//! |---|---|
//! | the workloads of a service account | `spiffe://TRUST-DOMAIN/ns/NAMESPACE/sa/NAME` |
//! | a node | `spiffe://TRUST-DOMAIN/heddle/node/NAME` |
//! | the control plane | `spiffe://TRUST-DOMAIN/heddle/control` |
//! | a workload's own Envoy | `spiffe://TRUST-DOMAIN/heddle/envoy/NAMESPACE/NAME` |

use std::fmt;
use std::sync::Arc;

use crate::name::InvalidName;
use crate::text_form::text_form;
use crate::{Name, Namespace, ServiceAccountName, WorkloadName, is_dns_subdomain};

#[cfg(test)]
mod tests;

/// Longest SPIFFE id (SPIFFE-ID standard, section 2.3), in bytes.
pub const MAX_SPIFFE_ID_BYTES: usize = 2048;
/// Longest name for which TLS lets a client ask (RFC 6066 section 3, RFC 1035 section 2.3.4).
const MAX_SERVER_NAME: usize = 253;

const SCHEME: &str = "spiffe://";
const NODE: &str = "heddle/node/";
const CONTROL: &str = "heddle/control";
const ENVOY: &str = "heddle/envoy/";

/// The domain in which identities are issued: a DNS-1123 subdomain such as `cluster.local`.
///
/// The SPIFFE standard also allows underscores; TLS clients could not ask for such names.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct TrustDomain(Arc<str>);

impl TrustDomain {
    /// Parses a DNS-1123 subdomain.
    ///
    /// # Errors
    /// [`InvalidName`] for anything else.
    pub fn parse(text: &str) -> Result<Self, InvalidName> {
        if is_dns_subdomain(text) {
            Ok(Self(text.into()))
        } else {
            Err(InvalidName::new(
                text,
                "trust domain (a-z, 0-9, '-' and '.', at most 253 characters)",
            ))
        }
    }

    /// The trust domain as text.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl Default for TrustDomain {
    /// `cluster.local`, the default of most meshes.
    fn default() -> Self {
        Self("cluster.local".into())
    }
}

/// The name of a node: a DNS-1123 subdomain.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct NodeName(Name);

/// The organizational unit in the subject of a node's certificate: an authority writes it into no other certificate.
pub const NODE_UNIT: &str = "heddle node";

/// The attribute beside it with the node's name: `uid` (RFC 4519 section 2.39), which may be as long as a node's name,
/// unlike a common name.
pub const NODE_NAME_OID: [u64; 7] = [0, 9, 2342, 19_200_300, 100, 1, 1];

impl NodeName {
    /// Parses a DNS-1123 subdomain.
    ///
    /// # Errors
    /// [`InvalidName`] for anything else.
    pub fn parse(text: &str) -> Result<Self, InvalidName> {
        Name::parse(text).map(Self)
    }

    /// The name as text.
    pub fn as_str(&self) -> &str {
        self.0.as_str()
    }
}

/// The subject that an identity names.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Subject {
    /// The workloads of a service account.
    Workload(ServiceAccountName),
    /// A node, towards the control plane.
    Node(NodeName),
    /// The control plane, towards nodes.
    Control,
    /// The Envoy of a workload's own, towards the control plane. Towards others it has the identity of its workload.
    Envoy(WorkloadName),
}

/// A SPIFFE id of this mesh.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct SpiffeId {
    /// The trust domain that issues the identity.
    pub trust_domain: TrustDomain,
    /// The identified workloads, node, control plane, or Envoy.
    pub subject: Subject,
}

impl SpiffeId {
    /// The id of the workloads of a service account.
    pub fn workload(trust_domain: TrustDomain, account: ServiceAccountName) -> Self {
        Self {
            trust_domain,
            subject: Subject::Workload(account),
        }
    }

    pub fn node(trust_domain: TrustDomain, node: NodeName) -> Self {
        Self {
            trust_domain,
            subject: Subject::Node(node),
        }
    }

    /// The id of the control plane.
    pub fn control(trust_domain: TrustDomain) -> Self {
        Self {
            trust_domain,
            subject: Subject::Control,
        }
    }

    /// The id of a workload's own Envoy, towards the control plane.
    pub fn envoy(trust_domain: TrustDomain, workload: WorkloadName) -> Self {
        Self {
            trust_domain,
            subject: Subject::Envoy(workload),
        }
    }

    /// Parses a SPIFFE id of exactly one of the forms above: no query, no fragment, no port, no percent-encoding, no
    /// empty path element.
    ///
    /// # Errors
    /// [`InvalidName`] for anything else.
    pub fn parse(text: &str) -> Result<Self, InvalidName> {
        parse(text).ok_or_else(|| {
            let shown: String = text.chars().take(MAX_SPIFFE_ID_BYTES).collect();
            InvalidName::new(
                &shown,
                "SPIFFE id of the form spiffe://TRUST-DOMAIN/ns/NAMESPACE/sa/NAME",
            )
        })
    }

    /// The service account; `None` for a node, the control plane, or an Envoy towards it.
    pub fn service_account(&self) -> Option<&ServiceAccountName> {
        match &self.subject {
            Subject::Workload(account) => Some(account),
            Subject::Node(_) | Subject::Control | Subject::Envoy(_) => None,
        }
    }

    /// The server name with which a TLS client asks for this identity (RFC 6066 section 3):
    /// `NAME.NAMESPACE.sa.TRUST-DOMAIN`, `NAME.node.TRUST-DOMAIN` or `control.TRUST-DOMAIN`.
    ///
    /// `None` if it would exceed the length of a DNS name, or for an Envoy, which is only ever a client: no client can
    /// ask for such an identity.
    pub fn server_name(&self) -> Option<String> {
        let domain = self.trust_domain.as_str();
        let name = match &self.subject {
            Subject::Workload(ServiceAccountName { namespace, name }) => {
                format!("{name}.{namespace}.sa.{domain}")
            }
            Subject::Node(node) => format!("{node}.node.{domain}"),
            Subject::Control => format!("control.{domain}"),
            Subject::Envoy(_) => return None,
        };
        (name.len() <= MAX_SERVER_NAME).then_some(name)
    }

    /// The identity, in this trust domain, for which a TLS client asks; the inverse of [`SpiffeId::server_name`].
    pub fn from_server_name(trust_domain: &TrustDomain, name: &str) -> Option<Self> {
        let subject = name
            .strip_suffix(trust_domain.as_str())?
            .strip_suffix('.')?;
        let subject = match subject.rsplit_once('.') {
            None if subject == "control" => Subject::Control,
            None => return None,
            Some((node, "node")) => Subject::Node(NodeName::parse(node).ok()?),
            Some((account, "sa")) => {
                let (name, namespace) = account.rsplit_once('.')?;
                Subject::Workload(ServiceAccountName::new(namespace, name).ok()?)
            }
            Some(_) => return None,
        };
        Some(Self {
            trust_domain: trust_domain.clone(),
            subject,
        })
    }
}

impl SpiffeId {
    fn write(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{SCHEME}{}/", self.trust_domain)?;
        match &self.subject {
            Subject::Workload(ServiceAccountName { namespace, name }) => {
                write!(f, "ns/{namespace}/sa/{name}")
            }
            Subject::Node(node) => write!(f, "{NODE}{node}"),
            Subject::Control => f.write_str(CONTROL),
            Subject::Envoy(workload) => write!(f, "{ENVOY}{workload}"),
        }
    }
}

text_form! {
    TrustDomain => |this, f| f.write_str(this.as_str());
    NodeName => |this, f| f.write_str(this.as_str());
    SpiffeId => |this, f| this.write(f);
}

fn parse(text: &str) -> Option<SpiffeId> {
    if text.len() > MAX_SPIFFE_ID_BYTES {
        return None;
    }
    let (domain, path) = text.strip_prefix(SCHEME)?.split_once('/')?;
    let trust_domain = TrustDomain::parse(domain).ok()?;
    let subject = if path == CONTROL {
        Subject::Control
    } else if let Some(node) = path.strip_prefix(NODE) {
        Subject::Node(NodeName::parse(node).ok()?)
    } else if let Some(workload) = path.strip_prefix(ENVOY) {
        Subject::Envoy(WorkloadName::parse(workload).ok()?)
    } else {
        let (namespace, name) = path.strip_prefix("ns/")?.split_once("/sa/")?;
        Subject::Workload(ServiceAccountName {
            namespace: Namespace::parse(namespace).ok()?,
            name: Name::parse(name).ok()?,
        })
    };
    Some(SpiffeId {
        trust_domain,
        subject,
    })
}
