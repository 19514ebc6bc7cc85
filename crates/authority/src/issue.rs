//! Issuing leaves, and letting nodes join.

use std::fmt;
use std::time::Duration;

use heddle_model::Subject;
use heddle_transport::secrets::TokenSecret;
use rcgen::PublicKeyData;
use rustls_pki_types::CertificateDer;
use zeroize::Zeroizing;

use super::members::{MAX_MEMBERS, MemberError};

use super::certificate::{self, CaFault, Serial, SignFault};
use super::key::CaKey;
use super::{
    Authority, CertificateRequest, FolderError, NodeName, Signer, SpiffeId, TokenId, TokenRefusal,
    UnixTime,
};

/// An issued leaf with its chain.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Issued {
    /// The leaf in DER, followed by the site's intermediate if there is one, without the root.
    pub chain: Vec<CertificateDer<'static>>,
    /// The serial number of the leaf.
    pub serial: Serial,
    /// When the leaf expires, in seconds since 1970.
    pub not_after: u64,
    /// Whether the leaf lives shorter than the settings say because its issuer expires before: the issuer should be
    /// replaced.
    pub shortened: bool,
}

/// Why a leaf was not issued.
#[derive(Debug)]
pub enum IssueError {
    /// The identity belongs to another trust domain.
    TrustDomain,
    /// The authority's own certificate has expired or is not valid yet.
    Issuer(CaFault),
    /// The system gave no random bytes.
    Random(FolderError),
    /// The cryptography library failed.
    Signing,
    /// The limit of [`MAX_MEMBERS`] nodes is reached.
    Nodes,
    /// The record that the node gets this leaf could not be written.
    NotDurable(FolderError),
}

/// Why a node cannot join.
#[derive(Debug)]
pub enum JoinError {
    /// Its token was refused.
    Token(TokenRefusal),
    /// Its identity is on the deny-list.
    Denied,
    /// Its leaf cannot be issued.
    Issue(IssueError),
}

impl Authority {
    /// Issues a leaf for an identity to a program that acts only for itself. The caller has checked with
    /// [`may_issue`](super::may_issue) that the asker may have it.
    ///
    /// # Errors
    /// [`IssueError`].
    pub fn issue(
        &self,
        id: &SpiffeId,
        request: &CertificateRequest,
        now: UnixTime,
    ) -> Result<Issued, IssueError> {
        match &id.subject {
            Subject::Node(own) => self.issue_to(own, id, request, now),
            _ => self.issue_by(&self.signer(), (id, None), request, now),
        }
    }

    /// As [`issue`](Self::issue), but to a node, whose name the leaf carries: other nodes accept from a node's leaf
    /// what they accept from no workload's.
    ///
    /// # Errors
    /// [`IssueError`].
    pub fn issue_to(
        &self,
        node: &NodeName,
        id: &SpiffeId,
        request: &CertificateRequest,
        now: UnixTime,
    ) -> Result<Issued, IssueError> {
        let issued = self.issue_by(&self.signer(), (id, Some(node)), request, now)?;
        if let Subject::Node(node) = &id.subject {
            self.lock().members.note(node, issued.not_after, now)?;
        }
        Ok(issued)
    }

    pub(super) fn issue_by(
        &self,
        signer: &Signer,
        (id, holder): (&SpiffeId, Option<&NodeName>),
        request: &CertificateRequest,
        now: UnixTime,
    ) -> Result<Issued, IssueError> {
        self.sign(signer, (id, holder), request, self.settings.leaf_life, now)
    }

    /// Issues a leaf that lives for so long at most, to a program that acts only for itself and has no key: the authority makes
    /// one, in PEM, and forgets it. The caller has checked that the program may have the identity.
    ///
    /// # Errors
    /// [`IssueError`].
    pub fn issue_with_key(
        &self,
        id: &SpiffeId,
        life: Duration,
        now: UnixTime,
    ) -> Result<(Issued, Zeroizing<String>), IssueError> {
        let (key, text) = CaKey::generate().ok_or(IssueError::Signing)?;
        let issued = self.sign(&self.signer(), (id, None), &key, life, now)?;
        Ok((issued, text))
    }

    fn sign(
        &self,
        signer: &Signer,
        (id, holder): (&SpiffeId, Option<&NodeName>),
        key: &impl PublicKeyData,
        life: Duration,
        now: UnixTime,
    ) -> Result<Issued, IssueError> {
        if id.trust_domain != self.trust_domain {
            return Err(IssueError::TrustDomain);
        }
        // An intermediate may be valid for longer than its root.
        signer.root.check_time(now).map_err(IssueError::Issuer)?;
        let mut within = signer.certificate.clone();
        within.not_after = within.not_after.min(signer.root.not_after);
        let times = (life, self.settings.backdate);
        let leaf = certificate::leaf((id, holder), key, &signer.issuer, &within, times, now)?;
        let mut chain = vec![leaf.der];
        chain.extend(signer.intermediate().cloned());
        let wanted = now.as_secs().saturating_add(life.as_secs());
        Ok(Issued {
            chain,
            serial: leaf.serial,
            not_after: leaf.not_after,
            shortened: leaf.not_after < wanted,
        })
    }

    /// Lets a node join: redeems its token and issues the node's leaf. When this returns a leaf, the token is gone from
    /// the disk.
    ///
    /// # Errors
    /// [`JoinError`]. The token is used up only when every other check had passed, or when its removal could not be
    /// made durable.
    pub fn join(
        &self,
        (id, secret): (&TokenId, &TokenSecret),
        node: &NodeName,
        request: &CertificateRequest,
        now: UnixTime,
    ) -> Result<Issued, JoinError> {
        let spiffe_id = SpiffeId::node(self.trust_domain.clone(), node.clone());
        let denied = self.trust().denied;
        if denied.denies(&spiffe_id, None, now).is_some() {
            return Err(JoinError::Denied);
        }
        let signer = self.signer();
        // Signed before the token is used up: a leaf that no node receives is harmless, but for a token that is used up
        // in vain the operator has to make another.
        let issued = self
            .issue_by(&signer, (&spiffe_id, Some(node)), request, now)
            .map_err(JoinError::Issue)?;
        let mut inner = self.lock();
        if !inner.members.has_room(node, now) {
            return Err(JoinError::Issue(IssueError::Nodes));
        }
        let redeemed = inner.tokens.redeem(id, secret, node, now);
        redeemed.map_err(JoinError::Token)?;
        let noted = inner.members.note(node, issued.not_after, now);
        noted.map_err(|error| JoinError::Issue(error.into()))?;
        Ok(issued)
    }
}

impl From<SignFault> for IssueError {
    fn from(fault: SignFault) -> Self {
        match fault {
            SignFault::Issuer(fault) => Self::Issuer(fault),
            SignFault::Random(error) => Self::Random(error),
            SignFault::Refused => Self::Signing,
        }
    }
}

impl From<MemberError> for IssueError {
    fn from(error: MemberError) -> Self {
        match error {
            MemberError::Full => Self::Nodes,
            MemberError::Folder(error) => Self::NotDurable(error),
        }
    }
}

impl JoinError {
    /// The reason in one word, for logs and metrics.
    pub fn reason(&self) -> &'static str {
        match self {
            Self::Token(refusal) => refusal.reason(),
            Self::Denied => "denied",
            Self::Issue(_) => "issue",
        }
    }
}

impl fmt::Display for IssueError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::TrustDomain => f.write_str("the identity is of another trust domain"),
            Self::Issuer(fault) => write!(f, "the authority's own certificate: {fault}"),
            Self::Random(error) => error.fmt(f),
            Self::Signing => f.write_str("the cryptography library failed (try again)"),
            Self::Nodes => write!(
                f,
                "there are {MAX_MEMBERS} nodes already (wait until the certificates of some that \
                 are gone have expired)"
            ),
            Self::NotDurable(error) => error.fmt(f),
        }
    }
}

impl std::error::Error for IssueError {}

impl fmt::Display for JoinError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Token(refusal) => refusal.fmt(f),
            Self::Denied => f.write_str("the node is on the deny-list (take it off, or leave it)"),
            Self::Issue(error) => error.fmt(f),
        }
    }
}

impl std::error::Error for JoinError {}
