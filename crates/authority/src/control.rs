//! The control plane's own certificate.

use heddle_model::SpiffeId;
use heddle_transport::secrets::pem;
use rustls_pki_types::CertificateDer;
use zeroize::Zeroizing;

use super::key::CaKey;
use super::{Authority, CertificateRequest, IssueError, Issued, UnixTime};

/// The certificate that the control plane presents to nodes, with its key.
pub struct ControlLeaf {
    /// The leaf and its chain.
    pub issued: Issued,
    /// The leaf's private key, PKCS #8 in DER. Its memory is cleared on drop.
    pub key: Zeroizing<Vec<u8>>,
    /// The root against which the chain verifies.
    pub root: CertificateDer<'static>,
}

impl Authority {
    /// Issues the control plane's own leaf, for a new key that is never written to disk.
    ///
    /// # Errors
    /// [`IssueError`].
    pub fn issue_control(&self, now: UnixTime) -> Result<ControlLeaf, IssueError> {
        let (key, text) = CaKey::generate().ok_or(IssueError::Signing)?;
        let signer = self.signer();
        let id = SpiffeId::control(self.trust_domain.clone());
        let issued = self.issue_by(&signer, (&id, None), &CertificateRequest::of(&key), now)?;
        let mut sections = pem::sections(text.as_bytes()).map_err(|_| IssueError::Signing)?;
        let section = sections.pop().ok_or(IssueError::Signing)?;
        Ok(ControlLeaf {
            issued,
            key: section.der,
            root: signer.root.der.clone(),
        })
    }
}
