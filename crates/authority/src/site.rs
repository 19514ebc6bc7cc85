//! Authorities of sites: with its own intermediate a site works for days without the root's authority.

use std::fmt;
use std::path::Path;
use std::time::Duration;

use heddle_model::TrustDomain;
use heddle_transport::secrets::Folder;
use heddle_transport::secrets::pem;
use rcgen::CertificateParams;
use rustls_pki_types::CertificateSigningRequestDer;

use super::certificate::{self, CaFault, SignFault};
use super::error::{AuthorityError, Lost};
use super::key::CaKey;
use super::request::PEM_LABEL;
use super::{Authority, CertificateRequest, UnixTime, roots};

/// Longest life of a site's intermediate: a year.
const MAX_SITE_LIFE: Duration = Duration::from_secs(366 * 86_400);
/// Longest file with a key in it, in bytes.
const MAX_KEY_BYTES: usize = 64 * 1024;
const MIN_SITE_LIFE: Duration = Duration::from_secs(3_600);

/// The certificates with which a site's authority starts; the site made the key itself.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SiteCertificates {
    /// The text for `intermediate.pem`.
    pub intermediate_pem: String,
    /// The text for `root.pem`.
    pub roots_pem: String,
    /// When the intermediate expires, in seconds since 1970.
    pub not_after: u64,
}

/// Why a site's intermediate was not signed.
#[derive(Debug)]
pub enum SiteError {
    /// This authority is a site's itself, and signs leaves only.
    Site,
    /// The life is below an hour or above a year.
    Life,
    /// The signing certificate may not sign an intermediate, or is not valid now.
    Issuer(CaFault),
    /// Signing failed, or its record could not be written.
    Authority(AuthorityError),
}

impl Authority {
    /// Signs a site's intermediate, which may sign leaves only and does not outlive the root.
    ///
    /// # Errors
    /// [`SiteError`].
    pub fn sign_site(
        &self,
        request: &CertificateRequest,
        life: Duration,
        now: UnixTime,
    ) -> Result<SiteCertificates, SiteError> {
        if !(MIN_SITE_LIFE..=MAX_SITE_LIFE).contains(&life) {
            return Err(SiteError::Life);
        }
        let mut inner = self.lock();
        if inner.roots.state.site {
            return Err(SiteError::Site);
        }
        let signer = &inner.roots.signer;
        let root = &signer.certificate;
        if !root.may_sign_authorities() {
            return Err(SiteError::Issuer(CaFault::PathLength));
        }
        let domain = &self.trust_domain;
        let made = certificate::site(domain, request, &signer.issuer, root, life, now);
        let made = made.map_err(|fault| match fault {
            SignFault::Issuer(fault) => SiteError::Issuer(fault),
            other => SiteError::Authority(other.into()),
        })?;
        // Recorded before it is handed out: a rotation must keep the root while this intermediate is in use.
        let mut state = inner.roots.state.clone();
        state.sites_until = state.sites_until.max(made.not_after);
        roots::save(&inner.folder, &state).map_err(SiteError::Authority)?;
        inner.roots.state = state;
        let trusted = inner.roots.certificates.iter();
        Ok(SiteCertificates {
            intermediate_pem: made.to_pem(),
            roots_pem: trusted.map(|root| root.to_pem()).collect(),
            not_after: made.not_after,
        })
    }
}

/// Makes the key of a site's authority, in its folder as `intermediate.key`, and the request for the root's authority
/// to sign, in DER. An existing key is used again, since it may be in use.
///
/// # Errors
/// [`AuthorityError`] as for [`Authority::open`], and when the folder holds an authority already.
pub fn request_site(
    dir: &Path,
    trust_domain: &TrustDomain,
) -> Result<CertificateSigningRequestDer<'static>, AuthorityError> {
    const FILE: &str = "intermediate.key";
    let folder = Folder::open(dir)?;
    let lock = match folder.lock() {
        Ok(lock) => Some(lock),
        // The site's control plane holds the lock; an existing key can be read nevertheless.
        Err(error) if error.is_busy() && folder.read(FILE, MAX_KEY_BYTES)?.is_some() => None,
        Err(error) => return Err(error.into()),
    };
    if lock.is_some() {
        folder.sweep()?;
    }
    if folder.names()?.iter().any(|name| name == "root.key") {
        return Err(AuthorityError::Lost(
            folder.path_of("root.key"),
            Lost::TwoSigners,
        ));
    }
    let key = match folder.read(FILE, MAX_KEY_BYTES)? {
        Some(bytes) => CaKey::from_pem(&bytes).map_err(|why| {
            AuthorityError::Certificate(folder.path_of(FILE), CaFault::KeyFile(why))
        })?,
        None => {
            let (key, text) = CaKey::generate().ok_or(AuthorityError::Signing)?;
            folder.write(FILE, text.as_bytes())?;
            key
        }
    };
    let mut params = CertificateParams::default();
    params.distinguished_name = rcgen::DistinguishedName::new();
    let name = format!("Heddle site of {trust_domain}");
    let name = name.get(..64).unwrap_or(&name).to_owned();
    params
        .distinguished_name
        .push(rcgen::DnType::CommonName, name);
    let made = params.serialize_request(&key);
    let made = made.map_err(|_| AuthorityError::Signing)?;
    Ok(made.into())
}

/// A site's request in PEM, to be carried to the root's authority.
pub fn site_request_pem(request: &CertificateSigningRequestDer<'_>) -> String {
    pem::encode(PEM_LABEL, request).to_string()
}

impl fmt::Display for SiteError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Site => f.write_str(
                "this authority is a site's and signs leaves only (ask the authority that has the \
                 root's key)",
            ),
            Self::Life => f.write_str(
                "a site's intermediate lives for an hour to a year (choose a time between)",
            ),
            Self::Issuer(fault) => fault.fmt(f),
            Self::Authority(error) => error.fmt(f),
        }
    }
}

impl std::error::Error for SiteError {}
