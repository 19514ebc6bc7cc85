//! Certificates: which ones may be an authority's, and how Heddle's own are made.
//!
//! Sources: the SPIFFE X.509-SVID standard (sections 2 to 5) and RFC 5280 section 4.

use std::fmt;
use std::str::FromStr as _;
use std::time::Duration;

use heddle_model::calendar::utc;
use heddle_model::{NODE_NAME_OID, NODE_UNIT, NodeName, SpiffeId, TrustDomain};
use heddle_transport::hex;
use heddle_transport::secrets::{FolderError, fill, pem};
use rcgen::{
    BasicConstraints, CertificateParams, DistinguishedName, DnType, ExtendedKeyUsagePurpose, IsCa,
    Issuer, KeyUsagePurpose, PublicKeyData, SanType, SerialNumber,
};
use rustls_pki_types::CertificateDer;
use serde::{Deserialize, Deserializer, Serialize, Serializer, de};
use time::OffsetDateTime;
use x509_parser::certificate::X509Certificate;
use x509_parser::extensions::GeneralName;
use x509_parser::prelude::FromDer as _;

use super::UnixTime;
use super::digest::sha256;
use super::key::CaKey;

/// How far the validity of a root or a site's certificate begins in the past, for nodes whose clocks are behind.
const CA_BACKDATE: Duration = Duration::from_secs(3_600);

/// The serial number of a certificate: 128 random bits, so that it is unpredictable.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Serial([u8; 16]);

impl Serial {
    pub(super) fn random() -> Result<Self, FolderError> {
        let mut bytes = [0; 16];
        fill(&mut bytes)?;
        // RFC 5280 section 4.1.2.2 requires a positive number.
        bytes[0] |= 1;
        Ok(Self(bytes))
    }

    /// Reads the big-endian content of a certificate's INTEGER. `None` when it is zero or longer than 16 bytes.
    pub fn from_be_bytes(bytes: &[u8]) -> Option<Self> {
        let first = bytes.iter().position(|byte| *byte != 0)?;
        let bytes = bytes.get(first..)?;
        let start = 16usize.checked_sub(bytes.len())?;
        let mut serial = [0; 16];
        serial.get_mut(start..)?.copy_from_slice(bytes);
        Some(Self(serial))
    }

    /// The 16 bytes, big-endian.
    pub fn as_bytes(&self) -> &[u8; 16] {
        &self.0
    }

    /// Reads 32 hexadecimal digits, the form in which a serial number is displayed.
    pub fn parse(text: &str) -> Option<Self> {
        hex::decode(text).map(Self)
    }
}

impl fmt::Display for Serial {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&hex::encode(&self.0))
    }
}

impl fmt::Debug for Serial {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

impl Serialize for Serial {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl<'de> Deserialize<'de> for Serial {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = String::deserialize(deserializer)?;
        Self::parse(&text).ok_or_else(|| de::Error::custom("a serial number has 32 digits"))
    }
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct CaCertificate {
    pub(super) der: CertificateDer<'static>,
    pub(super) sha256: [u8; 32],
    /// Seconds since 1970.
    pub(super) not_before: u64,
    pub(super) not_after: u64,
    /// X.509 path length: how many intermediates may stand between this certificate and a leaf; `None` is no limit.
    path_length: Option<u32>,
    public_key: Vec<u8>,
}

/// Why a certificate cannot be an authority's. Serves as the message to the operator.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum CaFault {
    /// The PEM file does not hold the expected sections; the text says what is wrong.
    Pem(&'static str),
    /// The DER is not a readable X.509 certificate.
    Malformed,
    /// CA:TRUE or the usage that signs certificates is missing.
    NoAuthority,
    /// The path length forbids the certificates that it would have to sign.
    PathLength,
    /// A certificate of another trust domain; the URI names it.
    TrustDomain(String),
    /// The private key does not belong to the certificate.
    Key,
    /// The private key cannot be read; the text says why.
    KeyFile(&'static str),
    /// Expired at this time, in seconds since 1970.
    Expired(u64),
    /// Not valid before this time, in seconds since 1970.
    NotYetValid(u64),
    /// A leaf signed with it does not verify against the root.
    Chain,
}

impl CaCertificate {
    /// Reads a certificate and checks that it is an authority's of this trust domain. The caller checks its validity
    /// period.
    pub(super) fn parse(der: &[u8], trust_domain: &TrustDomain) -> Result<Self, CaFault> {
        let (rest, certificate) = X509Certificate::from_der(der).map_err(|_| CaFault::Malformed)?;
        let basic = certificate.basic_constraints().ok().flatten();
        let usage = certificate.key_usage().ok().flatten();
        let names = certificate.subject_alternative_name();
        let (Ok(names), true) = (names, rest.is_empty()) else {
            return Err(CaFault::Malformed);
        };
        if !basic.as_ref().is_some_and(|basic| basic.value.ca)
            || usage.is_some_and(|usage| !usage.value.key_cert_sign())
        {
            return Err(CaFault::NoAuthority);
        }
        // X.509-SVID section 3.2: a signing certificate may have a SPIFFE id, which then has no path.
        let own = format!("spiffe://{trust_domain}");
        for name in names.iter().flat_map(|names| &names.value.general_names) {
            if let GeneralName::URI(uri) = name
                && uri.starts_with("spiffe://")
                && uri.trim_end_matches('/') != own
            {
                let shown = uri.chars().take(300).collect();
                return Err(CaFault::TrustDomain(shown));
            }
        }
        let seconds = |time: i64| u64::try_from(time).unwrap_or(0);
        Ok(Self {
            der: CertificateDer::from(der.to_vec()),
            sha256: sha256(&[der]),
            not_before: seconds(certificate.validity().not_before.timestamp()),
            not_after: seconds(certificate.validity().not_after.timestamp()),
            path_length: basic.and_then(|basic| basic.value.path_len_constraint),
            public_key: certificate.public_key().subject_public_key.data.to_vec(),
        })
    }

    /// Reads all certificates of a PEM file: at least one, at most `max`.
    pub(super) fn from_pem(
        bytes: &[u8],
        max: usize,
        trust_domain: &TrustDomain,
    ) -> Result<Vec<Self>, CaFault> {
        let sections = pem::sections(bytes).map_err(CaFault::Pem)?;
        if sections
            .iter()
            .any(|section| section.label != "CERTIFICATE")
        {
            return Err(CaFault::Pem("it holds something else than certificates"));
        }
        if sections.is_empty() {
            return Err(CaFault::Pem("it holds no certificate"));
        }
        if sections.len() > max {
            return Err(CaFault::Pem("it holds too many certificates"));
        }
        sections
            .iter()
            .map(|section| Self::parse(&section.der, trust_domain))
            .collect()
    }

    pub(super) fn check_time(&self, now: UnixTime) -> Result<(), CaFault> {
        if now.as_secs() < self.not_before {
            return Err(CaFault::NotYetValid(self.not_before));
        }
        if now.as_secs() >= self.not_after {
            return Err(CaFault::Expired(self.not_after));
        }
        Ok(())
    }

    pub(super) fn check_key(&self, key: &CaKey) -> Result<(), CaFault> {
        match key.der_bytes() == self.public_key {
            true => Ok(()),
            false => Err(CaFault::Key),
        }
    }

    /// Whether the path length allows an intermediate below it.
    pub(super) fn may_sign_authorities(&self) -> bool {
        self.path_length != Some(0)
    }

    /// The issuer that signs in the name of this certificate.
    pub(super) fn issuer(&self, key: CaKey) -> Result<Issuer<'static, CaKey>, CaFault> {
        self.check_key(&key)?;
        Issuer::from_ca_cert_der(&self.der, key).map_err(|_| CaFault::Malformed)
    }

    pub(super) fn to_pem(&self) -> String {
        String::clone(&pem::encode("CERTIFICATE", &self.der))
    }
}

/// Makes the certificate of a new root: it signs leaves and site intermediates.
pub(super) fn root(
    trust_domain: &TrustDomain,
    key: &CaKey,
    life: Duration,
    now: UnixTime,
) -> Result<CaCertificate, SignFault> {
    let params = authority(trust_domain, "Heddle root", 1, life, now)?;
    let made = params.self_signed(key).map_err(|_| SignFault::Refused)?;
    CaCertificate::parse(made.der(), trust_domain).map_err(|_| SignFault::Refused)
}

/// Makes the intermediate of a site's authority, which signs leaves only.
pub(super) fn site(
    trust_domain: &TrustDomain,
    key: &impl PublicKeyData,
    issuer: &Issuer<'static, CaKey>,
    within: &CaCertificate,
    life: Duration,
    now: UnixTime,
) -> Result<CaCertificate, SignFault> {
    let mut params = authority(trust_domain, "Heddle site", 0, life, now)?;
    (params.not_before, params.not_after) = validity(within, CA_BACKDATE, life, now)?;
    params.use_authority_key_identifier_extension = true;
    let made = params
        .signed_by(key, issuer)
        .map_err(|_| SignFault::Refused)?;
    CaCertificate::parse(made.der(), trust_domain).map_err(|_| SignFault::Refused)
}

fn authority(
    trust_domain: &TrustDomain,
    name: &str,
    path_length: u8,
    life: Duration,
    now: UnixTime,
) -> Result<CertificateParams, SignFault> {
    let serial = Serial::random()?;
    let shown = serial.to_string();
    let mut params = CertificateParams::default();
    params.not_before = date(now.as_secs().saturating_sub(CA_BACKDATE.as_secs()))?;
    params.not_after = date(now.as_secs().saturating_add(life.as_secs()))?;
    // Each gets a unique name, so that two roots are never confused.
    params.distinguished_name = DistinguishedName::new();
    params
        .distinguished_name
        .push(DnType::OrganizationName, "Heddle");
    let common = format!("{name} {}", shown.get(..16).unwrap_or_default());
    params.distinguished_name.push(DnType::CommonName, common);
    params.serial_number = Some(SerialNumber::from_slice(&serial.0));
    params.subject_alt_names = vec![uri(&format!("spiffe://{trust_domain}"))?];
    params.is_ca = IsCa::Ca(BasicConstraints::Constrained(path_length));
    params.key_usages = vec![KeyUsagePurpose::KeyCertSign, KeyUsagePurpose::CrlSign];
    Ok(params)
}

pub(super) struct Leaf {
    pub(super) der: CertificateDer<'static>,
    pub(super) serial: Serial,
    /// Seconds since 1970.
    pub(super) not_after: u64,
}

/// Makes a leaf (X.509-SVID section 4: one URI, no CA, digitalSignature). Its subject names the node that holds its
/// key; without a node the subject is empty and the URI is marked critical, as RFC 5280 section 4.2.1.6 requires.
pub(super) fn leaf(
    (id, holder): (&SpiffeId, Option<&NodeName>),
    key: &impl PublicKeyData,
    issuer: &Issuer<'static, CaKey>,
    within: &CaCertificate,
    (life, backdate): (Duration, Duration),
    now: UnixTime,
) -> Result<Leaf, SignFault> {
    let serial = Serial::random()?;
    let mut params = CertificateParams::default();
    (params.not_before, params.not_after) = validity(within, backdate, life, now)?;
    params.distinguished_name = DistinguishedName::new();
    if let Some(node) = holder {
        let subject = &mut params.distinguished_name;
        subject.push(DnType::OrganizationalUnitName, NODE_UNIT);
        let name = DnType::CustomDnType(NODE_NAME_OID.to_vec());
        subject.push(name, node.as_str());
    }
    params.serial_number = Some(SerialNumber::from_slice(&serial.0));
    params.subject_alt_names = vec![uri(&id.to_string())?];
    params.is_ca = IsCa::ExplicitNoCa;
    params.key_usages = vec![KeyUsagePurpose::DigitalSignature];
    params.extended_key_usages = vec![
        ExtendedKeyUsagePurpose::ServerAuth,
        ExtendedKeyUsagePurpose::ClientAuth,
    ];
    params.use_authority_key_identifier_extension = true;
    let not_after = u64::try_from(params.not_after.unix_timestamp()).unwrap_or(0);
    let made = params
        .signed_by(key, issuer)
        .map_err(|_| SignFault::Refused)?;
    Ok(Leaf {
        der: made.der().clone(),
        serial,
        not_after,
    })
}

/// The validity period, cut to the issuer's: no certificate outlives its issuer.
fn validity(
    within: &CaCertificate,
    backdate: Duration,
    life: Duration,
    now: UnixTime,
) -> Result<(OffsetDateTime, OffsetDateTime), SignFault> {
    within.check_time(now).map_err(SignFault::Issuer)?;
    let from = now.as_secs().saturating_sub(backdate.as_secs());
    let until = now.as_secs().saturating_add(life.as_secs());
    Ok((
        date(from.max(within.not_before))?,
        date(until.min(within.not_after))?,
    ))
}

fn date(seconds: u64) -> Result<OffsetDateTime, SignFault> {
    let seconds = i64::try_from(seconds).map_err(|_| SignFault::Refused)?;
    OffsetDateTime::from_unix_timestamp(seconds).map_err(|_| SignFault::Refused)
}

fn uri(text: &str) -> Result<SanType, SignFault> {
    rcgen::string::Ia5String::from_str(text)
        .map(SanType::URI)
        .map_err(|_| SignFault::Refused)
}

/// Why nothing was signed.
#[derive(Debug)]
pub(super) enum SignFault {
    /// The issuer is expired or not valid yet.
    Issuer(CaFault),
    /// The system gave no random bytes.
    Random(FolderError),
    /// The library refused, as for a time out of range.
    Refused,
}

impl From<FolderError> for SignFault {
    fn from(error: FolderError) -> Self {
        Self::Random(error)
    }
}

impl fmt::Display for CaFault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Pem(why) => write!(f, "{why} (put the certificates in, in PEM)"),
            Self::Malformed => f.write_str("the certificate cannot be read (restore it)"),
            Self::NoAuthority => f.write_str(
                "the certificate must not sign others: it lacks CA:TRUE or keyCertSign (supply \
                 the certificate of an authority)",
            ),
            Self::PathLength => f.write_str(
                "the certificate's path length does not allow for what it would sign (supply one \
                 with a longer or no path length)",
            ),
            Self::TrustDomain(uri) => write!(
                f,
                "the certificate is of another trust domain, {uri:?} (supply this trust domain's, \
                 or set the trust domain to that)"
            ),
            Self::Key => {
                f.write_str("the private key is another certificate's (supply the two that match)")
            }
            Self::KeyFile(why) => write!(f, "{why} (supply the key unencrypted, in PEM)"),
            Self::Expired(at) => write!(
                f,
                "the certificate expired at {} (check the clock; if it is right, supply a new one \
                 or begin with an empty folder and let every node join again)",
                utc(*at)
            ),
            Self::NotYetValid(from) => write!(
                f,
                "the certificate is valid from {} on (check the clock)",
                utc(*from)
            ),
            Self::Chain => f.write_str(
                "what it signs does not verify against the root (supply a certificate that the \
                 root signed, without constraints on names or usages)",
            ),
        }
    }
}

impl std::error::Error for CaFault {}
