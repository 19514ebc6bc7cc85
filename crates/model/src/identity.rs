//! Identities: who a workload is, whatever address it has.
//!
//! An identity is a SPIFFE id (SPIFFE-ID standard, section 2): a URI whose authority is the trust
//! domain and whose path says which subject the domain vouches for.
//!
//! | subject | SPIFFE id |
//! |---|---|
//! | the workloads of a service account | `spiffe://TRUST-DOMAIN/ns/NAMESPACE/sa/NAME` |
//! | a node | `spiffe://TRUST-DOMAIN/heddle/node/NAME` |
//! | the control plane | `spiffe://TRUST-DOMAIN/heddle/control` |

use std::fmt;
use std::sync::Arc;

use crate::name::InvalidName;
use crate::text_form::text_form;
use crate::{Name, Namespace, ServiceAccountName, is_dns_subdomain};

#[cfg(test)]
mod tests;

/// Longest SPIFFE id (SPIFFE-ID standard, section 2.3), in bytes.
pub const MAX_SPIFFE_ID_BYTES: usize = 2048;
/// Longest name that TLS lets a client ask for (RFC 6066 section 3, RFC 1035 section 2.3.4).
const MAX_SERVER_NAME: usize = 253;

const SCHEME: &str = "spiffe://";
const NODE: &str = "heddle/node/";
const CONTROL: &str = "heddle/control";

/// The domain in which identities are issued: a DNS-1123 subdomain such as `cluster.local`.
///
/// The SPIFFE standard also allows underscores; those could not be asked for by TLS.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct TrustDomain(Arc<str>);

impl TrustDomain {
    /// Takes a DNS-1123 subdomain.
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
    /// `cluster.local`, which meshes have in common unless their operators choose another.
    fn default() -> Self {
        Self("cluster.local".into())
    }
}

/// The name of a node: a DNS-1123 subdomain.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct NodeName(Name);

/// The organizational unit in the subject of the certificates whose keys nodes have: an authority writes it only there.
pub const NODE_UNIT: &str = "heddle node";

/// The attribute beside it that names the node: `uid` (RFC 4519 section 2.39), which may be as long as a node's name,
/// unlike a common name.
pub const NODE_NAME_OID: [u64; 7] = [0, 9, 2342, 19_200_300, 100, 1, 1];

impl NodeName {
    /// Takes a DNS-1123 subdomain.
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

/// What a trust domain vouches for.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Subject {
    /// The workloads that run as a service account.
    Workload(ServiceAccountName),
    /// A node, when it talks to the control plane.
    Node(NodeName),
    /// The control plane, when it talks to nodes.
    Control,
}

/// A SPIFFE id of this mesh.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct SpiffeId {
    /// Who vouches.
    pub trust_domain: TrustDomain,
    /// For which subject.
    pub subject: Subject,
}

impl SpiffeId {
    /// The id of the workloads that run as a service account.
    pub fn workload(trust_domain: TrustDomain, account: ServiceAccountName) -> Self {
        Self {
            trust_domain,
            subject: Subject::Workload(account),
        }
    }

    /// The id of a node.
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

    /// Takes a SPIFFE id of one of the forms above, exactly: no query, no fragment, no port, no
    /// percent-encoding, no empty path element.
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

    /// The service account, unless it is the id of a part of Heddle.
    pub fn service_account(&self) -> Option<&ServiceAccountName> {
        match &self.subject {
            Subject::Workload(account) => Some(account),
            Subject::Node(_) | Subject::Control => None,
        }
    }

    /// The name by which a TLS client asks for this identity (RFC 6066 section 3):
    /// `NAME.NAMESPACE.sa.TRUST-DOMAIN`, `NAME.node.TRUST-DOMAIN` or `control.TRUST-DOMAIN`.
    ///
    /// `None` when it would be longer than a DNS name may be: no client can ask for such an identity.
    pub fn server_name(&self) -> Option<String> {
        let domain = self.trust_domain.as_str();
        let name = match &self.subject {
            Subject::Workload(ServiceAccountName { namespace, name }) => {
                format!("{name}.{namespace}.sa.{domain}")
            }
            Subject::Node(node) => format!("{node}.node.{domain}"),
            Subject::Control => format!("control.{domain}"),
        };
        (name.len() <= MAX_SERVER_NAME).then_some(name)
    }

    /// The identity of this trust domain that a TLS client asks for; the opposite of
    /// [`SpiffeId::server_name`].
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
