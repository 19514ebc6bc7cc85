//! Helpers shared by the authority's tests.

use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::time::Duration;

use heddle_model::{NodeName, ServiceAccountName, SpiffeId, TrustDomain};
use heddle_transport::hex;
use heddle_transport::secrets::{TokenSecret, pem};
use rcgen::{CertificateParams, KeyPair};
use rustls_pki_types::CertificateDer;

use super::*;

mod deny;
mod issue;
mod members;
mod request;
mod rotation;
mod site;
mod state;
mod token;

/// A Monday in 2026.
const NOW: u64 = 1_780_000_000;
const HOUR: u64 = 3_600;
const DAY: u64 = 24 * HOUR;

fn at(seconds: u64) -> UnixTime {
    UnixTime::since_unix_epoch(Duration::from_secs(seconds))
}

fn domain() -> TrustDomain {
    TrustDomain::parse("cluster.local").unwrap()
}

fn node(name: &str) -> NodeName {
    NodeName::parse(name).unwrap()
}

fn workload(namespace: &str, name: &str) -> SpiffeId {
    let account = ServiceAccountName::new(namespace, name).unwrap();
    SpiffeId::workload(domain(), account)
}

/// A temporary place for an authority's folder.
struct Place {
    _temporary: tempfile::TempDir,
    dir: PathBuf,
}

impl Place {
    fn new() -> Self {
        let temporary = tempfile::tempdir().unwrap();
        let dir = temporary.path().join("authority");
        Self {
            _temporary: temporary,
            dir,
        }
    }

    /// A folder with the files that an operator supplied.
    fn with(files: &[(&str, &str)]) -> Self {
        let place = Self::new();
        std::fs::create_dir(&place.dir).unwrap();
        chmod(&place.dir, 0o700);
        for (name, text) in files {
            place.put(name, text);
        }
        place
    }

    fn put(&self, name: &str, text: &str) {
        std::fs::write(self.dir.join(name), text).unwrap();
        chmod(&self.dir.join(name), 0o600);
    }

    fn read(&self, name: &str) -> String {
        std::fs::read_to_string(self.dir.join(name)).unwrap()
    }

    fn open(&self) -> Authority {
        self.try_open(NOW).unwrap()
    }

    fn try_open(&self, now: u64) -> Result<Authority, AuthorityError> {
        Authority::open(&self.dir, &domain(), AuthoritySettings::default(), at(now))
    }

    fn error(&self) -> String {
        self.try_open(NOW).unwrap_err().to_string()
    }
}

fn chmod(path: &Path, mode: u32) {
    std::fs::set_permissions(path, std::fs::Permissions::from_mode(mode)).unwrap();
}

fn request() -> CertificateRequest {
    request_of(&KeyPair::generate().unwrap())
}

fn request_of(key: &KeyPair) -> CertificateRequest {
    let made = CertificateParams::default().serialize_request(key).unwrap();
    CertificateRequest::parse(made.der()).unwrap()
}

/// Whether a chain verifies against a bundle at a given time, as a node would verify it.
fn verifies(chain: &[CertificateDer<'static>], bundle: &Bundle, now: u64) -> bool {
    let anchors: Vec<_> = bundle
        .roots
        .iter()
        .map(|root| webpki::anchor_from_trusted_cert(root).unwrap())
        .collect();
    let (leaf, between) = chain.split_first().unwrap();
    let leaf = webpki::EndEntityCert::try_from(leaf).unwrap();
    [
        webpki::KeyUsage::server_auth(),
        webpki::KeyUsage::client_auth(),
    ]
    .into_iter()
    .all(|usage| {
        let algorithms = webpki::ALL_VERIFICATION_ALGS;
        leaf.verify_for_usage(algorithms, &anchors, between, at(now), usage, None, None)
            .is_ok()
    })
}
