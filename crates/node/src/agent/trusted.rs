//! What a node trusts: the trust bundle and the deny-list from the control plane, and the part in force now.

use std::sync::Arc;

use aws_lc_rs::digest::{SHA256, digest};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use heddle_model::{SpiffeId, TrustDomain};
use heddle_transport::{Denied, Leaf, Trust, TrustError, hex};
use heddle_xds::{
    Bundle, DenyEntry, DenyList, MAX_CERTIFICATE_BYTES, MAX_DENIED, MAX_ROOTS, TrustUpdate,
};
use rustls_pki_types::CertificateDer;
use serde::{Deserialize, Serialize};

#[cfg(test)]
mod tests;

/// Trust as the control plane sent it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Trusted {
    pub(crate) domain: TrustDomain,
    pub(crate) bundle: Bundle,
    pub(crate) denied: DenyList,
}

impl Trusted {
    /// A copy with an update applied.
    pub(crate) fn with(&self, update: &TrustUpdate) -> Trusted {
        Trusted {
            domain: self.domain.clone(),
            bundle: update.bundle.as_ref().unwrap_or(&self.bundle).clone(),
            denied: update.denied.as_ref().unwrap_or(&self.denied).clone(),
        }
    }

    /// Trust in force at `unix_s` (seconds since 1970): deny-list entries that have expired are left out.
    ///
    /// # Errors
    /// When a root is not a certificate.
    pub(crate) fn in_force(&self, unix_s: u64) -> Result<Arc<Trust>, TrustError> {
        let mut denied = Denied::default();
        for entry in self
            .denied
            .entries
            .iter()
            .filter(|entry| unix_s < entry.expires)
        {
            match &entry.what {
                heddle_xds::Denied::Serial(serial) => {
                    let zeros = serial.iter().take_while(|byte| **byte == 0).count();
                    denied.serials.insert(serial[zeros..].into());
                }
                heddle_xds::Denied::Identity(id) => {
                    denied.ids.insert(id.clone());
                }
            }
        }
        let roots: Vec<Vec<u8>> = self.bundle.roots.iter().map(|root| root.to_vec()).collect();
        Trust::new(self.domain.clone(), &roots, denied).map(Arc::new)
    }

    /// Hexadecimal SHA-256 of the trusted root that signed a certificate of ours; `None` when no trusted root did.
    pub(crate) fn signer(&self, leaf: &Leaf) -> Option<String> {
        let vouches = |root: &&CertificateDer<'static>| {
            let alone = [root.to_vec()];
            let trust = Trust::new(self.domain.clone(), &alone, Denied::default());
            // No certificate outlives its issuer, so the whole chain is valid at this time.
            trust.is_ok_and(|trust| leaf.verify(&Arc::new(trust), leaf.not_after()).is_ok())
        };
        let root = self.bundle.roots.iter().find(vouches)?;
        Some(hex::encode(digest(&SHA256, root).as_ref()))
    }

    /// Whether a root with this SHA-256 is trusted.
    pub(crate) fn has_root(&self, sha256: &[u8; 32]) -> bool {
        let mut roots = self.bundle.roots.iter();
        roots.any(|root| digest(&SHA256, root).as_ref() == sha256)
    }

    /// When the next deny-list entry expires, in seconds since 1970.
    pub(crate) fn next_end(&self, unix_s: u64) -> Option<u64> {
        let entries = self.denied.entries.iter().map(|entry| entry.expires);
        entries.filter(|expires| unix_s < *expires).min()
    }

    /// Identities on the deny-list whose entries have not expired.
    pub(crate) fn denied_ids(&self, unix_s: u64) -> Vec<SpiffeId> {
        let alive = self.denied.entries.iter();
        let alive = alive.filter(|entry| unix_s < entry.expires);
        let ids = alive.filter_map(|entry| match &entry.what {
            heddle_xds::Denied::Identity(id) => Some(id.clone()),
            heddle_xds::Denied::Serial(_) => None,
        });
        ids.collect()
    }

    /// Number of deny-list entries that have not expired.
    pub(crate) fn alive(&self, unix_s: u64) -> usize {
        let entries = self.denied.entries.iter();
        entries.filter(|entry| unix_s < entry.expires).count()
    }

    /// Content of `trust.json`.
    pub(crate) fn to_json(&self) -> Vec<u8> {
        let entry = |entry: &DenyEntry| EntryFile {
            serial: match &entry.what {
                heddle_xds::Denied::Serial(serial) => Some(u128::from_be_bytes(*serial)),
                heddle_xds::Denied::Identity(_) => None,
            }
            .map(|serial| format!("{serial:032x}")),
            spiffe_id: match &entry.what {
                heddle_xds::Denied::Identity(id) => Some(id.to_string()),
                heddle_xds::Denied::Serial(_) => None,
            },
            expires: entry.expires,
        };
        let file = TrustFile {
            trust_domain: self.domain.to_string(),
            bundle_generation: self.bundle.generation,
            roots: self
                .bundle
                .roots
                .iter()
                .map(|root| STANDARD.encode(root))
                .collect(),
            deny_generation: self.denied.generation,
            denied: self.denied.entries.iter().map(entry).collect(),
        };
        // Strings and numbers can always be serialised.
        serde_json::to_vec_pretty(&file).unwrap_or_default()
    }

    /// Reads [`Trusted::to_json`].
    ///
    /// # Errors
    /// What is wrong, in words.
    pub(crate) fn from_json(bytes: &[u8]) -> Result<Trusted, String> {
        let file: TrustFile = serde_json::from_slice(bytes).map_err(|error| error.to_string())?;
        if file.bundle_generation == 0 {
            return Err("bundle_generation is 0".to_owned());
        }
        if !(1..=MAX_ROOTS).contains(&file.roots.len()) {
            return Err(format!(
                "{} roots, expected 1 to {MAX_ROOTS}",
                file.roots.len()
            ));
        }
        if file.denied.len() > MAX_DENIED {
            return Err(format!("more than {MAX_DENIED} entries are denied"));
        }
        let root = |text: &String| {
            let der = STANDARD.decode(text).ok();
            let der = der.filter(|der| (1..=MAX_CERTIFICATE_BYTES).contains(&der.len()));
            der.map(CertificateDer::from)
                .ok_or("roots: one is no certificate")
        };
        let roots = file.roots.iter().map(root).collect::<Result<_, _>>()?;
        let entries = file.denied.iter().map(EntryFile::read);
        let trusted = Trusted {
            domain: TrustDomain::parse(&file.trust_domain).map_err(|error| error.to_string())?,
            bundle: Bundle {
                generation: file.bundle_generation,
                roots,
            },
            denied: DenyList {
                generation: file.deny_generation,
                entries: entries.collect::<Result<_, _>>()?,
            },
        };
        trusted.in_force(0).map_err(|error| error.to_string())?;
        Ok(trusted)
    }
}

/// Format of `trust.json`.
#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct TrustFile {
    trust_domain: String,
    bundle_generation: u64,
    /// Certificates in DER, in base64.
    roots: Vec<String>,
    deny_generation: u64,
    denied: Vec<EntryFile>,
}

/// Exactly one of `serial` and `spiffe_id` is set.
#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct EntryFile {
    /// In hexadecimal.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    serial: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none", default)]
    spiffe_id: Option<String>,
    /// In seconds since 1970.
    expires: u64,
}

impl EntryFile {
    fn read(&self) -> Result<DenyEntry, String> {
        let what = match (&self.serial, &self.spiffe_id) {
            (Some(serial), None) => {
                let serial = u128::from_str_radix(serial, 16);
                let serial = serial.map_err(|_| "denied: a serial is no number".to_owned())?;
                heddle_xds::Denied::Serial(serial.to_be_bytes())
            }
            (None, Some(id)) => heddle_xds::Denied::Identity(
                SpiffeId::parse(id).map_err(|error| error.to_string())?,
            ),
            _ => return Err("denied: an entry is neither a serial nor an identity".to_owned()),
        };
        Ok(DenyEntry {
            what,
            expires: self.expires,
        })
    }
}
