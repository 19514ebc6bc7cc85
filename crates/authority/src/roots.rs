//! The trusted roots, the signing key, and the state file that says which is which.
//!
//! `state.json` is written last, so every file it names exists. A folder without it is empty, or holds what an operator
//! supplied. A folder with other files has lost its state file, or is not an authority's, and is refused: the authority
//! never replaces a lost root by a new one that no node trusts.

use std::sync::Arc;

use heddle_model::{NodeName, SpiffeId, TrustDomain};
use heddle_transport::hex;
use heddle_transport::secrets::Folder;
use rcgen::{Issuer, KeyPair, PublicKeyData};
use rustls_pki_types::CertificateDer;
use serde::{Deserialize, Serialize};

use super::certificate::{self, CaCertificate, CaFault, SignFault};
use super::error::{AuthorityError, Lost};
use super::key::CaKey;
use super::stage::Stage;
use super::{AuthoritySettings, MEMBERS, TOKENS, UnixTime};

const STATE: &str = "state.json";
const INTERMEDIATE: &str = "intermediate";
/// The supported version of the state file.
const VERSION: u32 = 1;
/// Files that an otherwise empty folder may have: the authority's lock, and the folder of fsck(8).
const HARMLESS: [&str; 2] = ["lock", "lost+found"];
/// Files that only a node writes.
const OF_A_NODE: [&str; 3] = ["node.leaf", "trust.json", "leaves"];
/// Subfolders that only an authority with a state has.
const OF_A_STATE: [&str; 2] = [TOKENS, MEMBERS];
const MAX_STATE_BYTES: usize = 64 * 1024;
const MAX_PEM_BYTES: usize = 64 * 1024;

/// The content of `state.json`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct State {
    pub(super) version: u32,
    pub(super) trust_domain: TrustDomain,
    /// Counts the bundles of roots, starting at 1.
    pub(super) generation: u64,
    pub(super) stage: Stage,
    /// One or two; the older first.
    pub(super) roots: Vec<RootEntry>,
    /// The number for the files of the next root.
    pub(super) next_number: u32,
    /// Whether the authority signs with a site's intermediate.
    pub(super) site: bool,
    /// The longest leaf life, in seconds, of any settings under which the current signer has issued.
    pub(super) longest_leaf_s: u64,
    /// When the last intermediate signed by the current signer expires, in seconds since 1970.
    pub(super) sites_until: u64,
    /// When the last certificate signed by the old root expires; set while two roots are trusted and the new one signs.
    pub(super) old_until: Option<u64>,
    /// When the rotation under way began, in seconds since 1970; absent while there is none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) began_at: Option<u64>,
    /// Whether there is a file with the deny-list. Folders written by versions before this field lack it; then the file
    /// is looked for once.
    #[serde(default)]
    pub(super) has_deny_list: bool,
}

/// A root and the file it is in.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct RootEntry {
    /// The name of the root's files without `.pem` and `.key`.
    pub(super) name: String,
    /// Digest of the certificate in DER.
    pub(super) sha256: String,
}

/// How an authority got its root at this start.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Origin {
    /// A new root was made: this is the first start.
    Made,
    /// The operator supplied a root or an intermediate, adopted at this start.
    Supplied,
    /// The root is unchanged since the last start.
    Kept,
    /// A site's certificates were replaced since the last start.
    Replaced,
}

/// The certificate and key that sign.
#[derive(Debug)]
pub(super) struct Signer {
    pub(super) issuer: Issuer<'static, CaKey>,
    /// The certificate of the issuer: a root or the site's intermediate.
    pub(super) certificate: CaCertificate,
    /// The root against which issued certificates verify.
    pub(super) root: CaCertificate,
}

impl Signer {
    /// The certificate between a leaf and the root, if any.
    pub(super) fn intermediate(&self) -> Option<&CertificateDer<'static>> {
        (self.certificate != self.root).then_some(&self.certificate.der)
    }
}

/// The state in force, with its certificates and signer.
#[derive(Debug)]
pub(super) struct Roots {
    pub(super) state: State,
    /// In the order of `state.roots`.
    pub(super) certificates: Vec<CaCertificate>,
    pub(super) signer: Arc<Signer>,
}

/// Reads the state of a folder, adopts supplied files, or makes a first root.
pub(super) fn open(
    folder: &Folder,
    trust_domain: &TrustDomain,
    settings: &AuthoritySettings,
    now: UnixTime,
) -> Result<(Roots, Origin), AuthorityError> {
    let names = folder.names()?;
    let has = |name: &str| names.iter().any(|found| found == name);
    let lost = |lost| Err(AuthorityError::Lost(folder.path_of(STATE), lost));
    if has(STATE) {
        return reopen(folder, trust_domain, settings, now);
    }
    let in_the_way = |lost, name: &String| Err(AuthorityError::Lost(folder.path_of(name), lost));
    if let Some(name) = names.iter().find(|name| OF_A_NODE.contains(&name.as_str())) {
        return in_the_way(Lost::OfANode, name);
    }
    if has(super::deny::FILE) || names.iter().any(|name| name.starts_with("root-")) {
        return lost(Lost::State);
    }
    let supplied = |file| has(&format!("{file}.pem")) || has(&format!("{file}.key"));
    let site = supplied(INTERMEDIATE);
    if !supplied("root") && !site {
        if OF_A_STATE.into_iter().any(has) {
            return lost(Lost::State);
        }
        let mut others = names.iter();
        if let Some(name) = others.find(|name| !HARMLESS.contains(&name.as_str())) {
            return in_the_way(Lost::NotEmpty, name);
        }
        let first = first_root(folder, trust_domain, settings, now)?;
        return Ok((first, Origin::Made));
    }
    if site && has("root.key") {
        return lost(Lost::TwoSigners);
    }
    let roots = load(folder, trust_domain, fresh(trust_domain, site, settings))?;
    check(&roots, now).map_err(|fault| ca(folder, "root.pem", fault))?;
    save(folder, &roots.state)?;
    Ok((roots, Origin::Supplied))
}

fn fresh(trust_domain: &TrustDomain, site: bool, settings: &AuthoritySettings) -> State {
    State {
        version: VERSION,
        trust_domain: trust_domain.clone(),
        generation: 1,
        stage: Stage::Steady,
        roots: Vec::new(),
        next_number: 2,
        site,
        longest_leaf_s: settings.leaf_life.as_secs(),
        sites_until: 0,
        old_until: None,
        began_at: None,
        has_deny_list: false,
    }
}

fn first_root(
    folder: &Folder,
    trust_domain: &TrustDomain,
    settings: &AuthoritySettings,
    now: UnixTime,
) -> Result<Roots, AuthorityError> {
    let (signer, entry) = new_root(folder, "root", trust_domain, settings, now)?;
    let mut state = fresh(trust_domain, false, settings);
    state.roots = vec![entry];
    save(folder, &state)?;
    Ok(Roots {
        state,
        certificates: vec![signer.certificate.clone()],
        signer: Arc::new(signer),
    })
}

/// Makes a root and writes its files; the state does not name it yet.
pub(super) fn new_root(
    folder: &Folder,
    name: &str,
    trust_domain: &TrustDomain,
    settings: &AuthoritySettings,
    now: UnixTime,
) -> Result<(Signer, RootEntry), AuthorityError> {
    let (key, text) = CaKey::generate().ok_or(AuthorityError::Signing)?;
    let certificate = certificate::root(trust_domain, &key, settings.root_life, now)?;
    folder.write(&format!("{name}.key"), text.as_bytes())?;
    write_root(folder, name, certificate, key)
}

/// Writes the certificate of a root whose key is on disk already.
pub(super) fn write_root(
    folder: &Folder,
    name: &str,
    certificate: CaCertificate,
    key: CaKey,
) -> Result<(Signer, RootEntry), AuthorityError> {
    let file = format!("{name}.pem");
    let issuer = certificate
        .issuer(key)
        .map_err(|fault| ca(folder, &file, fault))?;
    folder.write(&file, certificate.to_pem().as_bytes())?;
    let entry = RootEntry {
        name: name.to_owned(),
        sha256: hex::encode(&certificate.sha256),
    };
    let root = certificate.clone();
    let signer = Signer {
        issuer,
        certificate,
        root,
    };
    Ok((signer, entry))
}

fn reopen(
    folder: &Folder,
    trust_domain: &TrustDomain,
    settings: &AuthoritySettings,
    now: UnixTime,
) -> Result<(Roots, Origin), AuthorityError> {
    let bytes = folder.read(STATE, MAX_STATE_BYTES)?.unwrap_or_default();
    let state: State = serde_json::from_slice(&bytes)
        .map_err(|error| AuthorityError::corrupt(folder, STATE, error.to_string()))?;
    let old = state.clone();
    check_state(&state).map_err(|why| AuthorityError::corrupt(folder, STATE, why.to_owned()))?;
    if state.trust_domain != *trust_domain {
        let lost = Lost::TrustDomain(state.trust_domain, trust_domain.clone());
        return Err(AuthorityError::Lost(folder.path_of(STATE), lost));
    }
    let mut roots = load(folder, trust_domain, state)?;
    let signer = signer_file(&roots.state);
    check(&roots, now).map_err(|fault| ca(folder, &signer, fault))?;
    let replaced = roots.state.roots != old.roots;
    if replaced {
        roots.state.generation += 1;
    }
    let life = settings.leaf_life.as_secs();
    roots.state.longest_leaf_s = roots.state.longest_leaf_s.max(life);
    if roots.state != old {
        save(folder, &roots.state)?;
    }
    let origin = match replaced {
        true => Origin::Replaced,
        false => Origin::Kept,
    };
    Ok((roots, origin))
}

fn check_state(state: &State) -> Result<(), &'static str> {
    let is_name = |name: &str| {
        let number = name.strip_prefix("root-");
        name == "root" || number.is_some_and(|number| number.parse::<u32>().is_ok())
    };
    let wanted = match (state.stage, state.site) {
        (Stage::Steady, false) => 1..=1,
        (Stage::Steady, true) => 1..=2,
        (Stage::Begun | Stage::Switched, false) => 2..=2,
        (_, true) => return Err("a site does not rotate roots"),
    };
    if state.version != VERSION {
        return Err("it was written by another version of heddle");
    }
    if !wanted.contains(&state.roots.len()) {
        return Err("it names too many or too few roots");
    }
    if state.generation == 0 || !state.roots.iter().all(|root| is_name(&root.name)) {
        return Err("its values are out of range");
    }
    match state.old_until.is_some() == (state.stage == Stage::Switched) {
        true => Ok(()),
        false => Err("its stage and its times disagree"),
    }
}

/// The index of the signing root in the list.
fn signing(state: &State) -> usize {
    match state.stage {
        Stage::Steady | Stage::Begun => 0,
        Stage::Switched => 1,
    }
}

fn signer_file(state: &State) -> String {
    match (state.site, state.roots.get(signing(state))) {
        (false, Some(root)) => format!("{}.pem", root.name),
        _ => format!("{INTERMEDIATE}.pem"),
    }
}

/// Reads the files that the state names; a state that names none is new, and the supplied files are read.
pub(super) fn load(
    folder: &Folder,
    trust_domain: &TrustDomain,
    mut state: State,
) -> Result<Roots, AuthorityError> {
    let (certificates, signer) = match state.site {
        true => load_site(folder, trust_domain)?,
        false => load_roots(folder, trust_domain, &state)?,
    };
    let found = certificates.iter().enumerate().map(|(at, certificate)| {
        let name = state.roots.get(at).map(|root| root.name.clone());
        RootEntry {
            name: name.unwrap_or_else(|| "root".to_owned()),
            sha256: hex::encode(&certificate.sha256),
        }
    });
    let found: Vec<RootEntry> = found.collect();
    if !state.site
        && !state.roots.is_empty()
        && let Some((_, other)) = (state.roots.iter().zip(&found)).find(|(a, b)| a != b)
    {
        let path = folder.path_of(&format!("{}.pem", other.name));
        return Err(AuthorityError::Lost(path, Lost::OtherRoot));
    }
    state.roots = found;
    Ok(Roots {
        state,
        certificates,
        signer: Arc::new(signer),
    })
}

fn load_roots(
    folder: &Folder,
    trust_domain: &TrustDomain,
    state: &State,
) -> Result<(Vec<CaCertificate>, Signer), AuthorityError> {
    let names: Vec<&str> = match state.roots.as_slice() {
        [] => vec!["root"],
        roots => roots.iter().map(|root| root.name.as_str()).collect(),
    };
    let mut certificates = Vec::new();
    for name in &names {
        certificates.extend(read_certificates(folder, name, 1, trust_domain)?);
    }
    let at = signing(state);
    let (Some(name), Some(certificate)) = (names.get(at), certificates.get(at)) else {
        return Err(AuthorityError::Lost(folder.path_of(STATE), Lost::State));
    };
    let root = certificate.clone();
    let signer = signer(folder, name, certificate.clone(), root)?;
    Ok((certificates, signer))
}

fn load_site(
    folder: &Folder,
    trust_domain: &TrustDomain,
) -> Result<(Vec<CaCertificate>, Signer), AuthorityError> {
    let roots = read_certificates(folder, "root", 2, trust_domain)?;
    let own = read_certificates(folder, INTERMEDIATE, 1, trust_domain)?;
    let file = format!("{INTERMEDIATE}.pem");
    let (Some(root), Some(own)) = (roots.first(), own.into_iter().next()) else {
        return Err(ca(folder, &file, CaFault::Malformed));
    };
    let mut signer = signer(folder, INTERMEDIATE, own, root.clone())?;
    if let [_, second] = roots.as_slice()
        && verify(
            &signer,
            UnixTime::since_unix_epoch(middle(&signer.certificate)),
        )
        .is_err()
    {
        signer.root = second.clone();
    }
    Ok((roots, signer))
}

/// A time at which a certificate is valid, independent of the clock.
fn middle(certificate: &CaCertificate) -> std::time::Duration {
    let half = certificate.not_after.saturating_sub(certificate.not_before) / 2;
    std::time::Duration::from_secs(certificate.not_before + half)
}

fn read_certificates(
    folder: &Folder,
    name: &str,
    max: usize,
    trust_domain: &TrustDomain,
) -> Result<Vec<CaCertificate>, AuthorityError> {
    let file = format!("{name}.pem");
    let Some(bytes) = folder.read(&file, MAX_PEM_BYTES)? else {
        return Err(AuthorityError::Lost(folder.path_of(&file), Lost::File));
    };
    CaCertificate::from_pem(&bytes, max, trust_domain).map_err(|fault| ca(folder, &file, fault))
}

fn signer(
    folder: &Folder,
    name: &str,
    certificate: CaCertificate,
    root: CaCertificate,
) -> Result<Signer, AuthorityError> {
    let file = format!("{name}.key");
    let Some(bytes) = folder.read(&file, MAX_PEM_BYTES)? else {
        return Err(AuthorityError::Lost(folder.path_of(&file), Lost::File));
    };
    let failed = |fault| ca(folder, &file, fault);
    let key = CaKey::from_pem(&bytes).map_err(|why| failed(CaFault::KeyFile(why)))?;
    let issuer = certificate.issuer(key).map_err(failed)?;
    Ok(Signer {
        issuer,
        certificate,
        root,
    })
}

/// Checks that the signer is valid now, and that nodes will accept what it signs.
pub(super) fn check(roots: &Roots, now: UnixTime) -> Result<(), CaFault> {
    let signer = &roots.signer;
    signer.root.check_time(now)?;
    signer.certificate.check_time(now)?;
    if signer.certificate != signer.root && !signer.root.may_sign_authorities() {
        return Err(CaFault::PathLength);
    }
    verify(signer, now)
}

/// Signs a leaf that is never handed out, and verifies it as a node would.
pub(super) fn verify(signer: &Signer, now: UnixTime) -> Result<(), CaFault> {
    let chain = |_| CaFault::Chain;
    let key = KeyPair::generate().map_err(chain)?;
    let probe = probe(signer, &key, now).ok_or(CaFault::Chain)?;
    let anchor = webpki::anchor_from_trusted_cert(&signer.root.der).map_err(|_| CaFault::Chain)?;
    let between: Vec<_> = signer.intermediate().into_iter().cloned().collect();
    let leaf = webpki::EndEntityCert::try_from(&probe).map_err(|_| CaFault::Chain)?;
    for usage in [
        webpki::KeyUsage::server_auth(),
        webpki::KeyUsage::client_auth(),
    ] {
        leaf.verify_for_usage(
            webpki::ALL_VERIFICATION_ALGS,
            std::slice::from_ref(&anchor),
            &between,
            now,
            usage,
            None,
            None,
        )
        .map_err(|_| CaFault::Chain)?;
    }
    Ok(())
}

fn probe(
    signer: &Signer,
    key: &impl PublicKeyData,
    now: UnixTime,
) -> Option<CertificateDer<'static>> {
    let domain = TrustDomain::parse("probe").ok()?;
    let id = SpiffeId::node(domain, NodeName::parse("probe").ok()?);
    let life = std::time::Duration::from_secs(60);
    let within = &signer.certificate;
    let leaf = certificate::leaf((&id, None), key, &signer.issuer, within, (life, life), now);
    leaf.ok().map(|leaf| leaf.der)
}

/// Writes the state durably.
pub(super) fn save(folder: &Folder, state: &State) -> Result<(), AuthorityError> {
    let text = serde_json::to_vec_pretty(state)
        .map_err(|error| AuthorityError::corrupt(folder, STATE, error.to_string()))?;
    Ok(folder.write(STATE, &text)?)
}

fn ca(folder: &Folder, file: &str, fault: CaFault) -> AuthorityError {
    AuthorityError::Certificate(folder.path_of(file), fault)
}

impl From<SignFault> for AuthorityError {
    fn from(fault: SignFault) -> Self {
        match fault {
            SignFault::Random(error) => Self::Folder(error),
            SignFault::Issuer(_) | SignFault::Refused => Self::Signing,
        }
    }
}
