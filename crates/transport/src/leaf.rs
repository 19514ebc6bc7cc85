//! Certificates that prove an identity (SPIFFE X.509-SVID): our own and those of peers.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use heddle_model::{NODE_NAME_OID, NODE_UNIT, NodeName, SpiffeId, Subject};
use rustls::crypto::aws_lc_rs::sign::any_supported_type;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, UnixTime};
use rustls::sign::CertifiedKey;
use webpki::KeyUsage;
use x509_parser::extensions::GeneralName;
use x509_parser::oid_registry::{OID_X509_ORGANIZATIONAL_UNIT, Oid};
use x509_parser::prelude::{FromDer, X509Certificate, X509Name};
use zeroize::Zeroizing;

use crate::verify::{PeerKind, Verifier};
use crate::{Refusal, Trust};

#[cfg(test)]
mod tests;

/// Limit on the size of one certificate, in bytes.
const MAX_CERTIFICATE_BYTES: usize = 16 * 1024;
/// Limit on the certificates of a chain, without the root: a leaf, a site's intermediate, and two spare.
const MAX_CHAIN: usize = 4;
/// Limit on a serial number (RFC 5280 section 4.1.2.2), in bytes.
const MAX_SERIAL: usize = 20;

/// The identity at the other end of a session, from its certificate.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Peer {
    /// The SPIFFE id, which the certificate proves.
    pub id: SpiffeId,
    /// The node that holds the certificate's key, from the authority's mark in the subject or from a node identity.
    /// `None` for the certificate of another program, which speaks only for itself.
    pub node: Option<NodeName>,
    /// The certificate's serial number, without leading zeros.
    pub serial: Box<[u8]>,
    /// Start of the certificate's validity, in seconds since 1970.
    pub not_before: u64,
    /// End of the certificate's validity, in seconds since 1970.
    pub not_after: u64,
}

impl Peer {
    /// Reads a certificate and checks only its form: a leaf (not a CA) with exactly one URI, which is a SPIFFE id of a
    /// form that this mesh uses. A node mark, if present, must name a node. Signature, validity and trust are not
    /// checked.
    ///
    /// # Errors
    /// [`Refusal`]: which rule the certificate breaks.
    pub fn read(der: &[u8]) -> Result<Peer, Refusal> {
        let bad = |why: &str| Refusal::BadCertificate(why.to_owned());
        if der.len() > MAX_CERTIFICATE_BYTES {
            return Err(bad("it is too long"));
        }
        let (rest, certificate) =
            X509Certificate::from_der(der).map_err(|_| bad("it is malformed"))?;
        if !rest.is_empty() {
            return Err(bad("extra bytes follow it"));
        }
        let constraints = certificate.basic_constraints();
        if constraints
            .map_err(|_| bad("it is malformed"))?
            .is_some_and(|constraints| constraints.value.ca)
        {
            return Err(bad("it is a CA certificate, not a leaf"));
        }
        let names = certificate
            .subject_alternative_name()
            .map_err(|_| bad("its names are malformed"))?
            .ok_or(Refusal::NoSpiffeId)?;
        let mut uris = names
            .value
            .general_names
            .iter()
            .filter_map(|name| match name {
                GeneralName::URI(uri) => Some(*uri),
                _ => None,
            });
        let (Some(uri), None) = (uris.next(), uris.next()) else {
            return Err(Refusal::NoSpiffeId);
        };
        let id = SpiffeId::parse(uri).map_err(|_| Refusal::NoSpiffeId)?;
        let serial = certificate.raw_serial();
        let serial = &serial[serial.iter().take_while(|byte| **byte == 0).count()..];
        if serial.len() > MAX_SERIAL {
            return Err(bad("its serial number is too long"));
        }
        let seconds =
            |time: x509_parser::time::ASN1Time| u64::try_from(time.timestamp()).unwrap_or(0);
        let node = match (&id.subject, marked(certificate.subject())?) {
            (Subject::Node(own), Some(node)) if *own != node => {
                return Err(bad("its mark and its identity name different nodes"));
            }
            (Subject::Node(own), _) => Some(own.clone()),
            (Subject::Control, Some(_)) => return Err(bad("it marks the control plane as a node")),
            (_, node) => node,
        };
        Ok(Peer {
            id,
            node,
            serial: serial.into(),
            not_before: seconds(certificate.validity().not_before),
            not_after: seconds(certificate.validity().not_after),
        })
    }
}

/// The node that a certificate's subject names: the organizational unit [`NODE_UNIT`] and exactly one node name.
///
/// # Errors
/// When the subject carries the node mark, but no valid node name.
fn marked(subject: &X509Name<'_>) -> Result<Option<NodeName>, Refusal> {
    let bad = || Refusal::BadCertificate("its mark of a node is malformed".to_owned());
    let mut units = subject.iter_by_oid(&OID_X509_ORGANIZATIONAL_UNIT);
    match (units.next().map(|unit| unit.as_str()), units.next()) {
        (None, _) => return Ok(None),
        (Some(Ok(NODE_UNIT)), None) => {}
        (Some(Ok(_)), _) => return Ok(None),
        (Some(Err(_)), _) => return Err(bad()),
    }
    let named_by = Oid::from(&NODE_NAME_OID).map_err(|_| bad())?;
    let mut names = subject.iter_by_oid(&named_by);
    let (Some(name), None) = (names.next(), names.next()) else {
        return Err(bad());
    };
    let name = name.as_str().map_err(|_| bad())?;
    NodeName::parse(name).map(Some).map_err(|_| bad())
}

/// A certificate of ours with its private key. The key is erased when the last reference is dropped.
pub struct Leaf {
    /// The certificate's contents, as peers see them.
    pub(crate) shown: Peer,
    pub(crate) certified: Arc<CertifiedKey>,
}

impl Leaf {
    /// Combines a chain (leaf first, without the root) with the private key of its leaf (PKCS #8 DER).
    ///
    /// # Errors
    /// When the chain or the key is malformed, or the key does not match the leaf.
    pub fn new(chain: Vec<Vec<u8>>, key: &Zeroizing<Vec<u8>>) -> Result<Leaf, LeafError> {
        if chain.len() > MAX_CHAIN {
            return Err(LeafError::Chain(Refusal::BadCertificate(format!(
                "{} certificates in one chain",
                chain.len()
            ))));
        }
        let leaf = chain.first().ok_or(LeafError::Empty)?;
        let shown = Peer::read(leaf).map_err(LeafError::Chain)?;
        let key = PrivateKeyDer::try_from(key.as_slice()).map_err(|_| LeafError::Key)?;
        let key = any_supported_type(&key).map_err(|_| LeafError::Key)?;
        let chain = chain.into_iter().map(CertificateDer::from).collect();
        let certified = CertifiedKey::new(chain, key);
        certified.keys_match().map_err(|_| LeafError::Mismatch)?;
        Ok(Leaf {
            shown,
            certified: Arc::new(certified),
        })
    }

    /// Whether nodes with the same `trust` accept this leaf at `now` (seconds since 1970), both as a client's
    /// certificate and as a server's.
    ///
    /// # Errors
    /// Why they reject it.
    pub fn verify(&self, trust: &Arc<Trust>, now: u64) -> Result<(), Refusal> {
        let (leaf, rest) = self
            .certified
            .cert
            .split_first()
            .ok_or(Refusal::Anonymous)?;
        let now = UnixTime::since_unix_epoch(Duration::from_secs(now));
        let verifier = Verifier::of(PeerKind::Node, Arc::clone(trust));
        for usage in [KeyUsage::client_auth(), KeyUsage::server_auth()] {
            verifier.verify(leaf, rest, usage, now)?;
        }
        Ok(())
    }

    /// The node for which the authority marked it, if any.
    pub fn node(&self) -> Option<&NodeName> {
        self.shown.node.as_ref()
    }

    /// The identity that it proves.
    pub fn id(&self) -> &SpiffeId {
        &self.shown.id
    }

    /// End of its validity, in seconds since 1970.
    pub fn not_after(&self) -> u64 {
        self.shown.not_after
    }

    /// Start of its validity, in seconds since 1970.
    pub fn not_before(&self) -> u64 {
        self.shown.not_before
    }

    /// Its serial number, without leading zeros.
    pub fn serial(&self) -> &[u8] {
        &self.shown.serial
    }
}

impl fmt::Debug for Leaf {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // Never the key.
        f.debug_tuple("Leaf").field(&self.shown).finish()
    }
}

/// Why a chain and a key do not make a [`Leaf`].
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum LeafError {
    /// The chain has no certificate.
    Empty,
    /// The leaf's certificate is malformed, or the chain is too long.
    Chain(Refusal),
    /// The key is malformed or of an unsupported type.
    Key,
    /// The key does not match the leaf's certificate.
    Mismatch,
}

impl fmt::Display for LeafError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            LeafError::Empty => f.write_str("the chain holds no certificate"),
            LeafError::Chain(refusal) => refusal.fmt(f),
            LeafError::Key => f.write_str("the key is no PKCS #8 key of a supported kind"),
            LeafError::Mismatch => f.write_str("the key does not belong to the certificate"),
        }
    }
}

impl std::error::Error for LeafError {}
