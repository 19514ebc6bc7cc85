//! Rotation of roots, during which every valid leaf stays trusted.
//!
//! ```text
//!              begin                 switch                 finish
//!   steady ─────────────▶ begun ─────────────▶ switched ─────────────▶ steady
//!   one root              │ both trusted,       both trusted,          the new one
//!      ▲                  │ the old one signs   the new one signs      alone
//!      └──────────────────┘
//!            cancel
//! ```
//!
//! A stage ends when every node has confirmed its bundle: nodes must know the new root before it signs anything, and
//! every certificate of the old root must have expired before that root is dropped.

use std::fmt;

use heddle_model::NodeName;
use heddle_model::calendar::utc;
use heddle_transport::secrets::pem;
use heddle_transport::secrets::{Folder, FolderError};

use super::certificate::{CaCertificate, CaFault};
use super::error::AuthorityError;
use super::key::CaKey;
use super::roots::{self, RootEntry, Roots, Signer};
use super::stage::Stage;
use super::{AuthoritySettings, UnixTime};

/// How many nodes a refusal's message names.
const MAX_NAMED: usize = 10;

/// The stage of a rotation, and what it waits for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RotationStatus {
    /// The current stage.
    pub stage: Stage,
    /// When the rotation began, in seconds since 1970; absent while none is under way.
    pub began_at: Option<u64>,
    /// The generation of the bundle that nodes have to confirm.
    pub generation: u64,
    /// How many nodes have to confirm it.
    pub nodes: usize,
    /// The nodes that have not confirmed it yet.
    pub unconfirmed: Vec<NodeName>,
    /// When the last certificate of the old root expires, in seconds since 1970; only while the new root signs.
    pub old_until: Option<u64>,
    /// From when on the old root is dropped automatically, in seconds since 1970: a little later, for clocks that are
    /// behind.
    pub finish_from: Option<u64>,
}

/// The new root of a rotation.
pub enum NextRoot<'a> {
    /// A root made now.
    Make,
    /// A root supplied by the operator.
    Supply {
        /// Its certificate in PEM.
        certificate: &'a [u8],
        /// Its private key in PEM, unencrypted.
        key: &'a [u8],
    },
}

/// Why a step of a rotation was refused.
#[derive(Debug)]
pub enum RotationRefusal {
    /// Another step is next at this stage.
    Order(Stage),
    /// A site's authority has no root key.
    Site,
    /// These nodes have not confirmed the bundle; they would stop trusting others, or be trusted by others.
    Unconfirmed(Vec<NodeName>),
    /// Certificates of the old root may be in use until this time, in seconds since 1970.
    StillInUse(u64),
    /// The supplied certificate or key cannot be a root.
    Supplied(CaFault),
    /// The change could not be made durable.
    Authority(AuthorityError),
}

impl From<AuthorityError> for RotationRefusal {
    fn from(error: AuthorityError) -> Self {
        Self::Authority(error)
    }
}

impl From<FolderError> for RotationRefusal {
    fn from(error: FolderError) -> Self {
        Self::Authority(error.into())
    }
}

/// Trusts a new root beside the signing one.
pub(super) fn begin(
    folder: &Folder,
    roots: &mut Roots,
    next: &NextRoot<'_>,
    settings: &AuthoritySettings,
    now: UnixTime,
) -> Result<(), RotationRefusal> {
    expect(roots, Stage::Steady)?;
    let mut state = roots.state.clone();
    let name = format!("root-{}", state.next_number);
    let (signer, entry) = match next {
        NextRoot::Make => roots::new_root(folder, &name, &state.trust_domain, settings, now)?,
        NextRoot::Supply { certificate, key } => {
            supplied(folder, roots, &name, (certificate, key), now)?
        }
    };
    state.next_number = state.next_number.saturating_add(1);
    state.generation += 1;
    state.stage = Stage::Begun;
    state.began_at = Some(now.as_secs());
    state.roots.push(entry);
    roots::save(folder, &state)?;
    roots.state = state;
    roots.certificates.push(signer.certificate);
    Ok(())
}

fn supplied(
    folder: &Folder,
    roots: &Roots,
    name: &str,
    (certificate, key): (&[u8], &[u8]),
    now: UnixTime,
) -> Result<(Signer, RootEntry), RotationRefusal> {
    let refused = RotationRefusal::Supplied;
    let read = |bytes| CaCertificate::from_pem(bytes, 1, &roots.state.trust_domain);
    let mut read = read(certificate).map_err(refused)?;
    let certificate = read.pop().ok_or(refused(CaFault::Malformed))?;
    certificate.check_time(now).map_err(refused)?;
    if roots.certificates.contains(&certificate) {
        return Err(refused(CaFault::Pem(
            "it is the root that is trusted already",
        )));
    }
    let from_pem = |key| CaKey::from_pem(key).map_err(|why| refused(CaFault::KeyFile(why)));
    let probe = Signer {
        issuer: certificate.issuer(from_pem(key)?).map_err(refused)?,
        root: certificate.clone(),
        certificate: certificate.clone(),
    };
    roots::verify(&probe, now).map_err(refused)?;
    let sections = pem::sections(key).map_err(|why| refused(CaFault::KeyFile(why)))?;
    let own = sections.iter().find(|s| s.label.ends_with("PRIVATE KEY"));
    let own = own.ok_or(refused(CaFault::KeyFile("it holds no private key")))?;
    let text = pem::encode(&own.label, &own.der);
    folder.write(&format!("{name}.key"), text.as_bytes())?;
    Ok(roots::write_root(
        folder,
        name,
        certificate,
        from_pem(key)?,
    )?)
}

pub(super) fn switch(
    folder: &Folder,
    roots: &mut Roots,
    settings: &AuthoritySettings,
    unconfirmed: &[NodeName],
    force: bool,
    now: UnixTime,
) -> Result<(), RotationRefusal> {
    expect(roots, Stage::Begun)?;
    confirmed(unconfirmed, force)?;
    let mut state = roots.state.clone();
    state.stage = Stage::Switched;
    let leaves_until = now.as_secs().saturating_add(state.longest_leaf_s);
    state.old_until = Some(leaves_until.max(state.sites_until));
    state.longest_leaf_s = settings.leaf_life.as_secs();
    state.sites_until = 0;
    // Read again from disk, since the signer of the new root is not kept in memory.
    let next = roots::load(folder, &state.trust_domain.clone(), state)?;
    roots::check(&next, now).map_err(RotationRefusal::Supplied)?;
    roots::save(folder, &next.state)?;
    *roots = next;
    Ok(())
}

pub(super) fn finish(
    folder: &Folder,
    roots: &mut Roots,
    unconfirmed: &[NodeName],
    force: bool,
    now: UnixTime,
) -> Result<(), RotationRefusal> {
    expect(roots, Stage::Switched)?;
    confirmed(unconfirmed, force)?;
    if let Some(until) = roots.state.old_until
        && now.as_secs() < until
        && !force
    {
        return Err(RotationRefusal::StillInUse(until));
    }
    drop_root(folder, roots, 0)
}

/// Cancels a rotation whose new root has not signed anything.
pub(super) fn cancel(folder: &Folder, roots: &mut Roots) -> Result<(), RotationRefusal> {
    expect(roots, Stage::Begun)?;
    drop_root(folder, roots, 1)
}

fn drop_root(folder: &Folder, roots: &mut Roots, at: usize) -> Result<(), RotationRefusal> {
    let mut state = roots.state.clone();
    let gone = state.roots.remove(at);
    state.stage = Stage::Steady;
    state.generation += 1;
    state.old_until = None;
    state.began_at = None;
    roots::save(folder, &state)?;
    roots.state = state;
    roots.certificates.remove(at);
    // The state no longer names these files: if removing them fails, they do no harm.
    folder.remove(&format!("{}.key", gone.name))?;
    folder.remove(&format!("{}.pem", gone.name))?;
    Ok(())
}

fn expect(roots: &Roots, wanted: Stage) -> Result<(), RotationRefusal> {
    if roots.state.site {
        return Err(RotationRefusal::Site);
    }
    match roots.state.stage == wanted {
        true => Ok(()),
        false => Err(RotationRefusal::Order(roots.state.stage)),
    }
}

fn confirmed(unconfirmed: &[NodeName], force: bool) -> Result<(), RotationRefusal> {
    match unconfirmed.is_empty() || force {
        true => Ok(()),
        false => Err(RotationRefusal::Unconfirmed(unconfirmed.to_vec())),
    }
}

impl fmt::Display for RotationRefusal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Order(stage) => write!(f, "this step is not possible at this stage: {stage}"),
            Self::Site => f.write_str(
                "this authority signs for a site and does not have the root's key (rotate where \
                 the key is, then replace root.pem and the intermediate here and restart)",
            ),
            Self::Unconfirmed(nodes) => {
                let count = nodes.len();
                write!(f, "{count} of the nodes have not confirmed the roots: ")?;
                for (position, node) in nodes.iter().take(MAX_NAMED).enumerate() {
                    let comma = if position > 0 { ", " } else { "" };
                    write!(f, "{comma}{node}")?;
                }
                if count > MAX_NAMED {
                    write!(f, " and {} more", count - MAX_NAMED)?;
                }
                f.write_str(
                    " (wait for them, remove those that are gone, or force it: they will have to \
                     join again)",
                )
            }
            Self::StillInUse(until) => write!(
                f,
                "certificates of the old root may be in use until {} (wait, or force it: their \
                 holders are refused until they have renewed)",
                utc(*until)
            ),
            Self::Supplied(fault) => write!(f, "the new root: {fault}"),
            Self::Authority(error) => error.fmt(f),
        }
    }
}

impl std::error::Error for RotationRefusal {}
