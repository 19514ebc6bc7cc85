//! The certificate authority: decides which peer is issued which identity, and for how long.
//!
//! ```text
//!   folder ──► roots ──► certificate ──► a leaf, its chain, its end
//!   state      who       X.509-SVID
//!   on disk    signs         ▲
//!     ▲                      │ key only
//!     ├── token   who may join, once
//!     ├── deny    who is refused early      request   what was asked
//!     └── rotation                          permission   whether it may be
//! ```
//!
//! An [`Authority`] is one state folder and its content. It has no clock and no network: the caller passes the time in,
//! and the server that uses it authenticates the peers. Calls that change the state write it to disk before they
//! return, and so block; the others do not.
//!
//! Private keys exist only in the folder and in the memory of this process.

use std::net::SocketAddr;
use std::path::Path;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use heddle_model::{NodeName, SpiffeId, TrustDomain};
use heddle_transport::secrets::{Folder, FolderError, JoinToken, Lock, TokenId};
use rustls_pki_types::CertificateDer;
use tokio::sync::watch;

mod certificate;
mod control;
mod deny;
mod digest;
mod error;
mod issue;
mod key;
mod members;
mod permission;
mod request;
mod roots;
mod rotation;
mod settings;
mod site;
mod stage;
#[cfg(test)]
mod tests;
mod token;

pub use certificate::{CaFault, Serial};
pub use control::ControlLeaf;
pub use deny::{
    Denied, DenyEntry, DenyError, DenyList, MAX_DENIED, MAX_DENY_LIFE, MAX_REASON_BYTES,
};
pub use digest::sha256;
pub use error::{AuthorityError, Lost};
pub use issue::{IssueError, Issued, JoinError};
pub use members::{MAX_MEMBERS, Member, is_reachable};
pub use permission::{Asker, IssuanceRefusal, may_issue};
pub use request::{CertificateRequest, MAX_REQUEST_BYTES, RequestFault};
pub use roots::Origin;
pub use rotation::{NextRoot, RotationRefusal, RotationStatus};
pub use rustls_pki_types::UnixTime;
pub use settings::{AuthoritySettings, OutOfBounds};
pub use site::{SiteCertificates, SiteError, request_site, site_request_pem};
pub use stage::Stage;
pub use token::{
    DEFAULT_TOKEN_LIFE, MAX_TOKEN_LIFE, MAX_TOKENS, TokenError, TokenInfo, TokenRefusal,
};

use members::Members;
use roots::{Roots, Signer};
use token::Tokens;

/// The roots trusted at one time.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Bundle {
    /// Counts the bundles, starting at 1.
    pub generation: u64,
    /// One certificate, or two during a rotation, in DER.
    pub roots: Vec<CertificateDer<'static>>,
}

/// The input of certificate verification: roots and deny-list.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Trust {
    /// The trusted roots.
    pub bundle: Arc<Bundle>,
    /// Certificates and identities refused although a trusted root verifies them.
    pub denied: Arc<DenyList>,
}

/// A certificate authority with its state in a folder. Threads may share it.
#[derive(Debug)]
pub struct Authority {
    trust_domain: TrustDomain,
    settings: AuthoritySettings,
    origin: Origin,
    state: Mutex<Inner>,
    trust: watch::Sender<Trust>,
}

/// Subfolders of the state folder: unused tokens, and the nodes that hold certificates.
const TOKENS: &str = "tokens";
const MEMBERS: &str = "nodes";

/// The state that a change locks.
#[derive(Debug)]
struct Inner {
    folder: Folder,
    roots: Roots,
    tokens: Tokens,
    members: Members,
    /// Held while open: two processes on the same state would overwrite each other's changes.
    _lock: Lock,
}

impl Authority {
    /// Opens the authority whose state is in a folder. A missing or empty folder gets a new root; a folder with
    /// `root.pem` and `root.key`, or with `root.pem`, `intermediate.pem` and `intermediate.key`, is adopted as
    /// supplied. This call and every call that changes the state write to disk and block.
    ///
    /// # Errors
    /// [`AuthorityError`] when a setting is out of its bounds, when other users have access to the folder, when another
    /// process uses it, and when a file in it is damaged, missing, expired or of another trust domain.
    pub fn open(
        dir: &Path,
        trust_domain: &TrustDomain,
        settings: AuthoritySettings,
        now: UnixTime,
    ) -> Result<Self, AuthorityError> {
        settings.check()?;
        let folder = Folder::open(dir)?;
        let lock = folder.lock()?;
        folder.sweep()?;
        let denied = DenyList::read(&folder)?;
        let (mut roots, origin) = roots::open(&folder, trust_domain, &settings, now)?;
        let denied = DenyList::found_or_first(denied, &folder, &mut roots.state)?;
        let tokens = Tokens::open(Folder::open(&folder.path_of(TOKENS))?, now)?;
        let members = Members::open(Folder::open(&folder.path_of(MEMBERS))?, now)?;
        let (trust, _) = watch::channel(Trust {
            bundle: Arc::new(bundle(&roots)),
            denied: Arc::new(denied),
        });
        Ok(Self {
            trust_domain: trust_domain.clone(),
            settings,
            origin,
            trust,
            state: Mutex::new(Inner {
                folder,
                roots,
                tokens,
                members,
                _lock: lock,
            }),
        })
    }

    /// The trust domain in which this authority issues identities.
    pub fn trust_domain(&self) -> &TrustDomain {
        &self.trust_domain
    }

    /// How long leaves live.
    pub fn leaf_life(&self) -> Duration {
        self.settings.leaf_life
    }

    /// How the authority got its root at this start.
    pub fn origin(&self) -> Origin {
        self.origin
    }

    /// The roots in force and the deny-list.
    pub fn trust(&self) -> Trust {
        self.trust.borrow().clone()
    }

    /// Notifies of each change of [`Authority::trust`]; a slow receiver sees only the newest value.
    pub fn watch_trust(&self) -> watch::Receiver<Trust> {
        self.trust.subscribe()
    }

    /// The SHA-256, over the DER, of the root against which issued certificates verify.
    pub fn root_sha256(&self) -> [u8; 32] {
        self.signer().root.sha256
    }

    /// The root against which issued certificates verify. A server sends it along with its chain, so that a node can
    /// compare it with its token.
    pub fn root(&self) -> CertificateDer<'static> {
        self.signer().root.der.clone()
    }

    /// When the signing certificate or its root expires, whichever is first, in seconds since 1970. An operator should
    /// rotate the root, or replace the site's intermediate, long before.
    pub fn expires(&self) -> u64 {
        let signer = self.signer();
        signer.certificate.not_after.min(signer.root.not_after)
    }

    /// From when on the signing certificate should be replaced, in seconds since 1970: when a quarter of its life is
    /// left, at most 30 days.
    pub fn replace_from(&self) -> u64 {
        const LONGEST: u64 = 30 * 86_400;
        let (expires, from) = (self.expires(), self.signer().certificate.not_before);
        let quarter = expires.saturating_sub(from) / 4;
        expires.saturating_sub(quarter.min(LONGEST))
    }

    /// Whether this is a site's authority: it signs with an intermediate and has no root key.
    pub fn is_site(&self) -> bool {
        self.lock().roots.state.site
    }

    /// Makes a token with which the named node may join, once.
    ///
    /// # Errors
    /// [`TokenError`] when its life is zero or too long, when there are too many tokens, or when it could not be
    /// written.
    pub fn create_token(
        &self,
        node: &NodeName,
        life: Duration,
        now: UnixTime,
    ) -> Result<JoinToken, TokenError> {
        let mut inner = self.lock();
        let root = inner.roots.signer.root.sha256;
        inner.tokens.create(node, life, root, now)
    }

    /// The usable tokens, by id. Tokens that name a replaced root are left out: nodes could not join with them.
    pub fn tokens(&self, now: UnixTime) -> Vec<TokenInfo> {
        let inner = self.lock();
        inner.tokens.list(&inner.roots.signer.root.sha256, now)
    }

    /// Revokes a token; returns whether it existed.
    ///
    /// # Errors
    /// [`FolderError`] when that could not be made durable; this process refuses the token nevertheless.
    pub fn revoke_token(&self, id: &TokenId) -> Result<bool, FolderError> {
        self.lock().tokens.revoke(id)
    }

    /// Refuses a certificate or an identity until the entry expires.
    ///
    /// # Errors
    /// [`DenyError`] when the entry is out of bounds, or could not be made durable.
    pub fn deny(&self, what: Denied, entry: DenyEntry, now: UnixTime) -> Result<(), DenyError> {
        let inner = self.lock();
        let next = self.trust.borrow().denied.with(what, entry, now)?;
        next.save(&inner.folder)?;
        self.publish(&inner, Some(next));
        Ok(())
    }

    /// Removes an entry of the deny-list; returns whether it existed.
    ///
    /// # Errors
    /// [`FolderError`] when that could not be made durable; then the entry stays in force.
    pub fn allow(&self, what: &Denied, now: UnixTime) -> Result<bool, FolderError> {
        let inner = self.lock();
        let Some(next) = self.trust.borrow().denied.without(what, now) else {
            return Ok(false);
        };
        next.save(&inner.folder)?;
        self.publish(&inner, Some(next));
        Ok(true)
    }

    /// The nodes that may hold a certificate of their own, by name.
    pub fn members(&self, now: UnixTime) -> Vec<Member> {
        self.lock().members.list(now)
    }

    /// Records the address at which a node is reached, for use after a restart; a node that is not a member is ignored.
    /// `newest` is called with the lock held, so that of two concurrent calls the later one wins.
    ///
    /// # Errors
    /// [`FolderError`] when it could not be made durable: then the recorded address stays as it was.
    pub fn note_address(
        &self,
        node: &NodeName,
        newest: impl FnOnce() -> Option<SocketAddr>,
    ) -> Result<(), FolderError> {
        let mut inner = self.lock();
        match newest() {
            Some(address) => inner.members.note_address(node, address),
            None => Ok(()),
        }
    }

    /// The stage of a rotation, and what it waits for. `nodes` are the nodes that should confirm the bundle;
    /// `confirmed` returns the generation that a node has confirmed.
    pub fn rotation<'a>(
        &self,
        nodes: impl IntoIterator<Item = &'a NodeName>,
        confirmed: impl Fn(&NodeName) -> Option<u64>,
    ) -> RotationStatus {
        let inner = self.lock();
        let state = &inner.roots.state;
        let generation = state.generation;
        let is_behind = |node: &&NodeName| confirmed(node).is_none_or(|own| own < generation);
        let mut count = 0;
        let nodes = nodes.into_iter().inspect(|_| count += 1);
        let unconfirmed = nodes.filter(is_behind).cloned().collect();
        RotationStatus {
            stage: state.stage,
            began_at: state.began_at,
            generation,
            nodes: count,
            unconfirmed,
            old_until: state.old_until,
            finish_from: state
                .old_until
                .map(|until| until.saturating_add(self.settings.backdate.as_secs())),
        }
    }

    /// The nodes that may hold a certificate of their own and are not denied, by name.
    pub fn welcome(&self, now: UnixTime) -> Vec<Member> {
        let denied = self.trust().denied;
        let mut members = self.members(now);
        members.retain(|member| {
            let id = SpiffeId::node(self.trust_domain.clone(), member.node.clone());
            denied.denies(&id, None, now).is_none()
        });
        members
    }

    /// As [`Authority::rotation`], for every node that may hold a certificate and is not denied.
    pub fn rotation_of_members(
        &self,
        confirmed: impl Fn(&NodeName) -> Option<u64>,
        now: UnixTime,
    ) -> RotationStatus {
        let members = self.welcome(now);
        self.rotation(members.iter().map(|member| &member.node), confirmed)
    }

    /// Takes the next step of a rotation under way if it has nothing to wait for: switches when every node has
    /// confirmed both roots, finishes when every certificate of the old root has expired. Returns the new stage if it
    /// changed. Cheap to call often.
    ///
    /// # Errors
    /// [`RotationRefusal`] when a step was due and failed.
    pub fn advance_rotation(
        &self,
        confirmed: impl Fn(&NodeName) -> Option<u64>,
        now: UnixTime,
    ) -> Result<Option<Stage>, RotationRefusal> {
        let is_steady = self.lock().roots.state.stage == Stage::Steady;
        if is_steady {
            return Ok(None);
        }
        let status = self.rotation_of_members(confirmed, now);
        if !status.unconfirmed.is_empty() {
            return Ok(None);
        }
        match status.stage {
            Stage::Begun => self.switch_rotation(&[], false, now)?,
            Stage::Switched if status.finish_from.is_some_and(|from| now.as_secs() >= from) => {
                self.finish_rotation(&[], false, now)?;
            }
            Stage::Steady | Stage::Switched => return Ok(None),
        }
        Ok(Some(self.lock().roots.state.stage))
    }

    /// Begins a rotation: a new root is trusted beside the signing one.
    ///
    /// # Errors
    /// [`RotationRefusal`]: nothing has changed.
    pub fn begin_rotation(
        &self,
        next: &NextRoot<'_>,
        now: UnixTime,
    ) -> Result<(), RotationRefusal> {
        self.rotate(|folder, roots| rotation::begin(folder, roots, next, &self.settings, now))
    }

    /// Signs with the new root from now on. `unconfirmed` are the nodes that have not confirmed the bundle with both
    /// roots; `force` switches without waiting for them.
    ///
    /// Tokens made before name the old root, and cannot be used any more.
    ///
    /// # Errors
    /// [`RotationRefusal`]: nothing has changed.
    pub fn switch_rotation(
        &self,
        unconfirmed: &[NodeName],
        force: bool,
        now: UnixTime,
    ) -> Result<(), RotationRefusal> {
        let settings = &self.settings;
        self.rotate(|folder, roots| {
            rotation::switch(folder, roots, settings, unconfirmed, force, now)
        })
    }

    /// Ends a rotation: only the new root is trusted, and the old root's key is removed. `unconfirmed` are the nodes
    /// that have not confirmed the bundle with both roots; `force` waits neither for them nor until every certificate
    /// of the old root has expired.
    ///
    /// # Errors
    /// [`RotationRefusal`]: nothing has changed, unless removing the old key failed.
    pub fn finish_rotation(
        &self,
        unconfirmed: &[NodeName],
        force: bool,
        now: UnixTime,
    ) -> Result<(), RotationRefusal> {
        self.rotate(|folder, roots| rotation::finish(folder, roots, unconfirmed, force, now))
    }

    /// Cancels a rotation before the new root signs.
    ///
    /// # Errors
    /// [`RotationRefusal`]: nothing has changed, unless removing the new key failed.
    pub fn cancel_rotation(&self) -> Result<(), RotationRefusal> {
        self.rotate(rotation::cancel)
    }

    fn rotate(
        &self,
        step: impl FnOnce(&Folder, &mut Roots) -> Result<(), RotationRefusal>,
    ) -> Result<(), RotationRefusal> {
        let mut guard = self.lock();
        let inner = &mut *guard;
        let stepped = step(&inner.folder, &mut inner.roots);
        self.publish(inner, None);
        stepped
    }

    fn publish(&self, inner: &Inner, denied: Option<DenyList>) {
        self.trust.send_if_modified(|trust| {
            let old = trust.clone();
            trust.bundle = Arc::new(bundle(&inner.roots));
            if let Some(denied) = denied {
                trust.denied = Arc::new(denied);
            }
            *trust != old
        });
    }

    /// Cloned out of the lock, so that signing does not hold it.
    fn signer(&self) -> Arc<Signer> {
        Arc::clone(&self.lock().roots.signer)
    }

    fn lock(&self) -> MutexGuard<'_, Inner> {
        // A change replaces the state as a whole, so a panic of another thread leaves nothing half done.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn bundle(roots: &Roots) -> Bundle {
    let certificates = roots.certificates.iter();
    Bundle {
        generation: roots.state.generation,
        roots: certificates.map(|root| root.der.clone()).collect(),
    }
}
