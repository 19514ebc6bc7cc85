//! The experiment's own certificate authority: the root of a mesh, and leaf certificates for proxies that have no
//! authority of their own. P-256, as everywhere in Heddle.

use std::fs;
use std::io::Write;
use std::net::IpAddr;
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::path::Path;

use anyhow::Context;
use heddle_model::{
    NODE_NAME_OID, NODE_UNIT, NodeName, ServiceAccountName, SpiffeId, TrustDomain, WorkloadName,
};
use heddle_transport::{Denied, Leaf, Trust};
use rcgen::{
    BasicConstraints, CertificateParams, DistinguishedName, DnType, ExtendedKeyUsagePurpose, IsCa,
    Issuer, KeyPair, KeyUsagePurpose, SanType,
};
use rustls::RootCertStore;
use time::{Duration, OffsetDateTime};
use zeroize::Zeroizing;

/// The trust domain of every mesh of the experiments, which is Heddle's default.
const TRUST_DOMAIN: &str = "cluster.local";
/// The namespace of all Services and service accounts of the experiments.
const NAMESPACE: &str = "lab";

/// Validity of a certificate: longer than any experiment.
const LIFE: Duration = Duration::days(60);

/// The identity of a service account of the experiments.
///
/// # Errors
/// When `account` is not a valid name.
pub(super) fn identity(account: &str) -> anyhow::Result<SpiffeId> {
    let account = ServiceAccountName::new(NAMESPACE, account).context("an account's name")?;
    Ok(SpiffeId::workload(trust_domain()?, account))
}

fn trust_domain() -> anyhow::Result<TrustDomain> {
    TrustDomain::parse(TRUST_DOMAIN).context("trust domain")
}

/// A root certificate and its key.
pub(super) struct Authority {
    issuer: Issuer<'static, KeyPair>,
    root: rcgen::Certificate,
    root_key: String,
}

/// A certificate and its key, both in PEM.
pub(super) struct Certified {
    pub(super) certificate: String,
    pub(super) key: String,
}

impl Authority {
    /// Generates a key and its self-signed root certificate.
    ///
    /// # Errors
    /// When the key cannot be generated, or the certificate not be signed.
    pub(super) fn new() -> anyhow::Result<Authority> {
        let key = KeyPair::generate()?;
        let mut params = valid_now()?;
        params
            .distinguished_name
            .push(DnType::CommonName, "heddle-lab");
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        params.key_usages = vec![KeyUsagePurpose::KeyCertSign];
        params.subject_alt_names = vec![uri(&format!("spiffe://{TRUST_DOMAIN}"))?];
        Ok(Authority {
            root: params.self_signed(&key)?,
            root_key: key.serialize_pem(),
            issuer: Issuer::new(params, key),
        })
    }

    /// A leaf certificate of a service account, for a proxy that is not a Heddle node.
    ///
    /// # Errors
    /// When the certificate cannot be signed, or `account` is not a valid name.
    pub(super) fn leaf(&self, account: &str) -> anyhow::Result<Certified> {
        self.certified(account, valid_now()?)
    }

    /// The same with the mark of the node `node`, so that peers accept its holder as that node.
    ///
    /// # Errors
    /// When the certificate cannot be signed, or `account` is not a valid name.
    pub(super) fn leaf_of_node(&self, account: &str, node: &str) -> anyhow::Result<Certified> {
        let mut params = valid_now()?;
        let subject = &mut params.distinguished_name;
        subject.push(DnType::OrganizationalUnitName, NODE_UNIT);
        let name = DnType::CustomDnType(NODE_NAME_OID.to_vec());
        subject.push(name, node);
        self.certified(account, params)
    }

    /// The certificate of a node's own identity, which it shows to the control plane.
    ///
    /// # Errors
    /// When the certificate cannot be signed, or `node` is not a valid name.
    pub(super) fn node(&self, node: &str) -> anyhow::Result<Leaf> {
        let name = NodeName::parse(node).context("a node's name")?;
        self.own(&SpiffeId::node(trust_domain()?, name))
    }

    /// The certificate with which the Envoy of a workload connects to the control plane.
    ///
    /// # Errors
    /// When the certificate cannot be signed, or `workload` is not a valid name.
    pub(super) fn envoy(&self, workload: &str) -> anyhow::Result<Leaf> {
        let name = WorkloadName::parse(workload).context("a workload's name")?;
        self.own(&SpiffeId::envoy(trust_domain()?, name))
    }

    fn own(&self, id: &SpiffeId) -> anyhow::Result<Leaf> {
        let (certificate, key) = self.signed(id, valid_now()?)?;
        let key = Zeroizing::new(key.serialize_der());
        Leaf::new(vec![certificate.der().to_vec()], &key).context("a certificate")
    }

    /// The certificate of a server that is none of the mesh's, at this address.
    ///
    /// # Errors
    /// When it cannot be signed.
    pub(super) fn server(&self, address: IpAddr) -> anyhow::Result<Certified> {
        let mut params = valid_now()?;
        params.subject_alt_names = vec![SanType::IpAddress(address)];
        params.extended_key_usages = vec![ExtendedKeyUsagePurpose::ServerAuth];
        let key = KeyPair::generate()?;
        Ok(Certified {
            certificate: params.signed_by(&key, &self.issuer)?.pem(),
            key: key.serialize_pem(),
        })
    }

    /// What trusts servers of this authority.
    ///
    /// # Errors
    /// When the root is malformed.
    pub(super) fn roots(&self) -> anyhow::Result<RootCertStore> {
        let mut roots = RootCertStore::empty();
        roots.add(self.root.der().clone())?;
        Ok(roots)
    }

    /// Trust in this authority alone.
    ///
    /// # Errors
    /// When the root is malformed.
    pub(super) fn trust(&self) -> anyhow::Result<Trust> {
        let roots = [self.root.der().to_vec()];
        Trust::new(trust_domain()?, &roots, Denied::default()).context("the root")
    }

    fn certified(&self, account: &str, params: CertificateParams) -> anyhow::Result<Certified> {
        let (certificate, key) = self.signed(&identity(account)?, params)?;
        Ok(Certified {
            certificate: certificate.pem(),
            key: key.serialize_pem(),
        })
    }

    fn signed(
        &self,
        id: &SpiffeId,
        mut params: CertificateParams,
    ) -> anyhow::Result<(rcgen::Certificate, KeyPair)> {
        let key = KeyPair::generate()?;
        params.subject_alt_names = vec![uri(&id.to_string())?];
        params.key_usages = vec![KeyUsagePurpose::DigitalSignature];
        params.extended_key_usages = vec![
            ExtendedKeyUsagePurpose::ServerAuth,
            ExtendedKeyUsagePurpose::ClientAuth,
        ];
        Ok((params.signed_by(&key, &self.issuer)?, key))
    }

    /// Writes `root.pem`.
    ///
    /// # Errors
    /// When it cannot be written.
    pub(super) fn write_root(&self, dir: &Path) -> anyhow::Result<()> {
        write_private(&dir.join("root.pem"), &self.root.pem())
    }

    /// Makes a folder with `root.pem` and `root.key`, from which a control plane takes its authority.
    ///
    /// # Errors
    /// When it cannot be written.
    pub(super) fn hand_over(&self, dir: &Path) -> anyhow::Result<()> {
        fs::DirBuilder::new()
            .mode(0o700)
            .create(dir)
            .with_context(|| format!("cannot make {}", dir.display()))?;
        self.write_root(dir)?;
        write_private(&dir.join("root.key"), &self.root_key)
    }
}

impl Certified {
    /// Writes `NAME.pem` and `NAME.key`.
    ///
    /// # Errors
    /// When they cannot be written.
    pub(super) fn write(&self, dir: &Path, name: &str) -> anyhow::Result<()> {
        write_private(&dir.join(format!("{name}.pem")), &self.certificate)?;
        write_private(&dir.join(format!("{name}.key")), &self.key)
    }
}

fn valid_now() -> anyhow::Result<CertificateParams> {
    let mut params = CertificateParams::new(Vec::new())?;
    params.distinguished_name = DistinguishedName::new();
    let now = OffsetDateTime::now_utc();
    params.not_before = now - Duration::HOUR;
    params.not_after = now + LIFE;
    Ok(params)
}

fn uri(text: &str) -> anyhow::Result<SanType> {
    Ok(SanType::URI(text.try_into()?))
}

/// Writes a file that no other user may read.
///
/// # Errors
/// When it cannot be written, or exists already.
pub(super) fn write_private(file: &Path, text: &str) -> anyhow::Result<()> {
    fs::OpenOptions::new()
        .write(true)
        .create_new(true)
        .mode(0o600)
        .open(file)
        .and_then(|mut file| file.write_all(text.as_bytes()))
        .with_context(|| format!("cannot write {}", file.display()))
}
