//! Another root, without a moment in which a valid leaf is not trusted.
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
//! A stage ends when every node has confirmed what it brought: the new root has to be known before
//! anything is signed by it, and nothing may be left that the old one signed when it goes.

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

/// How many nodes a refusal names.
const MAX_NAMED: usize = 10;

/// Where a rotation stands, and what it waits for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RotationStatus {
    /// How far it is.
    pub stage: Stage,
    /// When it began, in seconds since 1970; absent while none is under way.
    pub began_at: Option<u64>,
    /// The generation of the bundle that nodes should have confirmed.
    pub generation: u64,
    /// How many should.
    pub nodes: usize,
    /// The nodes that have not confirmed it.
    pub unconfirmed: Vec<NodeName>,
    /// Until when something may be in use that the old root signed, in seconds since 1970; only while
    /// the new one signs.
    pub old_until: Option<u64>,
    /// From when on the old root is dropped by itself, in seconds since 1970: a little later, for clocks
    /// that are behind.
    pub finish_from: Option<u64>,
}

/// The root that a rotation brings.
pub enum NextRoot<'a> {
    /// One that is made now.
    Make,
    /// One that is supplied.
    Supply {
        /// Its certificate in PEM.
        certificate: &'a [u8],
        /// Its private key in PEM, unencrypted.
        key: &'a [u8],
    },
}

/// Why a step of a rotation is not taken.
#[derive(Debug)]
pub enum RotationRefusal {
    /// It is the turn of another step.
    Order(Stage),
    /// A site does not have the key of a root.
    Site,
    /// These nodes have not confirmed the bundle, and would stop to trust others or be trusted.
    Unconfirmed(Vec<NodeName>),
    /// Until then, in seconds since 1970, something may be in use that the old root signed.
    StillInUse(u64),
    /// What was supplied cannot be a root.
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

/// Trusts another root beside the one that signs.
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

/// Signs with the new root.
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
    // Read again, rather than kept in memory since the rotation began.
    let next = roots::load(folder, &state.trust_domain.clone(), state)?;
    roots::check(&next, now).map_err(RotationRefusal::Supplied)?;
    roots::save(folder, &next.state)?;
    *roots = next;
    Ok(())
}

/// Trusts the new root alone.
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

/// Gives up a rotation whose new root has not signed anything.
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
    // The state does not speak of them any more: if this fails, they do no harm.
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
            Self::Order(stage) => write!(f, "it is not the turn of this step: {stage}"),
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
                "what the old root signed may be in use until {} (wait, or force it: its holders \
                 are refused until they have renewed)",
                utc(*until)
            ),
            Self::Supplied(fault) => write!(f, "the new root: {fault}"),
            Self::Authority(error) => error.fmt(f),
        }
    }
}

impl std::error::Error for RotationRefusal {}
