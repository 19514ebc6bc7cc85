//! TLS to a kubelet. A kubelet without a certificate from its cluster makes one for the node's name alone, which does not
//! verify at 127.0.0.1. The agent is on the same machine and can read it: a certificate that is in the file is trusted as
//! it is, another one by its authority and its names.

use std::fs::File;
use std::io::Read;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use heddle_node::settings::KubeletSettings;
use rustls::client::WebPkiServerVerifier;
use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::crypto::{CryptoProvider, aws_lc_rs};
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName, UnixTime};
use rustls::version::TLS13;
use rustls::{ClientConfig, DigitallySignedStruct, Error, RootCertStore, SignatureScheme};
use zeroize::Zeroizing;

/// Where a kubelet keeps the certificate that it makes itself, unless it is told otherwise.
const OWN: &str = "/var/lib/kubelet/pki/kubelet.crt";
/// Largest file with certificates or a key, in bytes.
const MAX_FILE: u64 = 1 << 20;

/// Files of certificates, read for each connection.
pub(super) struct Files {
    ca: PathBuf,
    own: Option<(PathBuf, PathBuf)>,
}

impl Files {
    pub(super) fn of(settings: &KubeletSettings) -> Self {
        let own = settings.certificate.clone().zip(settings.key.clone());
        Files {
            ca: settings.ca.clone().unwrap_or_else(|| OWN.into()),
            own,
        }
    }

    /// Reads them.
    pub(super) fn config(&self) -> Result<ClientConfig, String> {
        let provider = Arc::new(aws_lc_rs::default_provider());
        let verifier = Verifier::new(certificates("ca", &self.ca)?, &provider)
            .map_err(|why| of_file("ca", &self.ca, &why))?;
        let builder = ClientConfig::builder_with_provider(provider)
            .with_protocol_versions(&[&TLS13])
            .map_err(|error| error.to_string())?
            .dangerous()
            .with_custom_certificate_verifier(Arc::new(verifier));
        let Some((certificate, key)) = &self.own else {
            return Ok(builder.with_no_client_auth());
        };
        let chain = certificates("certificate", certificate)?;
        let pem = Zeroizing::new(read(key, MAX_FILE).map_err(|why| of_file("key", key, &why))?);
        let secret = PrivateKeyDer::from_pem_slice(&pem)
            .map_err(|error| of_file("key", key, &format!("it has no private key: {error}")))?;
        let config = builder.with_client_auth_cert(chain, secret);
        config.map_err(|error| of_file("key", key, &error.to_string()))
    }
}

/// Reads a file of a bounded length.
pub(super) fn read(file: &Path, max: u64) -> Result<Vec<u8>, String> {
    let mut bytes = Vec::new();
    File::open(file)
        .and_then(|opened| opened.take(max + 1).read_to_end(&mut bytes))
        .map_err(|error| error.to_string())?;
    match bytes.len() as u64 > max {
        true => Err(format!("it has more than {} KiB", max >> 10)),
        false => Ok(bytes),
    }
}

fn certificates(field: &str, file: &Path) -> Result<Vec<CertificateDer<'static>>, String> {
    let pem = read(file, MAX_FILE).map_err(|why| of_file(field, file, &why))?;
    let all: Result<Vec<_>, _> = CertificateDer::pem_slice_iter(&pem).collect();
    match all {
        Ok(all) if !all.is_empty() => Ok(all),
        Ok(_) => Err(of_file(field, file, "it has no certificate in PEM")),
        Err(error) => Err(of_file(field, file, &error.to_string())),
    }
}

fn of_file(field: &str, file: &Path, why: &str) -> String {
    format!("qos.kubelet.{field}: {}: {why}", file.display())
}

/// Trusts the certificates of a file, and what their authorities have signed.
#[derive(Debug)]
struct Verifier {
    known: Vec<CertificateDer<'static>>,
    by_authority: Arc<WebPkiServerVerifier>,
}

impl Verifier {
    fn new(
        known: Vec<CertificateDer<'static>>,
        provider: &Arc<CryptoProvider>,
    ) -> Result<Self, String> {
        let mut roots = RootCertStore::empty();
        let (taken, _) = roots.add_parsable_certificates(known.iter().cloned());
        if taken == 0 {
            return Err("it has no certificate that is understood".to_owned());
        }
        let provider = Arc::clone(provider);
        let verifier = WebPkiServerVerifier::builder_with_provider(Arc::new(roots), provider);
        Ok(Verifier {
            known,
            by_authority: verifier.build().map_err(|error| error.to_string())?,
        })
    }
}

impl ServerCertVerifier for Verifier {
    fn verify_server_cert(
        &self,
        leaf: &CertificateDer<'_>,
        rest: &[CertificateDer<'_>],
        name: &ServerName<'_>,
        ocsp: &[u8],
        now: UnixTime,
    ) -> Result<ServerCertVerified, Error> {
        if self.known.iter().any(|known| known == leaf) {
            return Ok(ServerCertVerified::assertion());
        }
        let verifier = &self.by_authority;
        verifier.verify_server_cert(leaf, rest, name, ocsp, now)
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        leaf: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        self.by_authority
            .verify_tls12_signature(message, leaf, signed)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        leaf: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        self.by_authority
            .verify_tls13_signature(message, leaf, signed)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.by_authority.supported_verify_schemes()
    }
}
