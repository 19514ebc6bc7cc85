//! A control plane's parts for tests, with a clock that only the test moves.

use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::Duration;

use heddle_authority::{Authority, AuthoritySettings, CertificateRequest, UnixTime};
use heddle_control::{Board, Nodes};
use heddle_model::{NodeName, SpiffeId, TrustDomain};
use heddle_transport::{Clock, Leaf};
use rcgen::{CertificateParams, KeyPair};
use zeroize::Zeroizing;

use super::door::Door;

pub(super) const NOW: u64 = 1_780_000_000;
pub(super) const HOUR: u64 = 3_600;

pub(super) struct Fixture {
    pub(super) authority: Arc<Authority>,
    pub(super) nodes: Nodes,
    pub(super) board: Board,
    pub(super) clock: Arc<Clock>,
    time: Arc<AtomicU64>,
    dir: tempfile::TempDir,
}

pub(super) fn at(seconds: u64) -> UnixTime {
    UnixTime::since_unix_epoch(Duration::from_secs(seconds))
}

pub(super) fn node_id(name: &str) -> SpiffeId {
    let name = NodeName::parse(name).expect("a name");
    SpiffeId::node(TrustDomain::default(), name)
}

impl Fixture {
    pub(super) fn new() -> Fixture {
        let dir = tempfile::tempdir().expect("a folder");
        let state = dir.path().join("state");
        let settings = AuthoritySettings::default();
        let authority = Authority::open(&state, &TrustDomain::default(), settings, at(NOW));
        let time = Arc::new(AtomicU64::new(NOW));
        let read = Arc::clone(&time);
        let nodes = Nodes::default();
        Fixture {
            authority: Arc::new(authority.expect("an authority")),
            board: Board::new(nodes.clone()).expect("a board"),
            nodes,
            clock: Arc::new(Clock::with(0, move || read.load(Relaxed))),
            time,
            dir,
        }
    }

    /// The authority's folder.
    pub(super) fn state(&self) -> PathBuf {
        self.dir.path().join("state")
    }

    pub(super) fn set_time(&self, seconds: u64) {
        self.time.store(seconds, Relaxed);
    }

    pub(super) fn door(&self) -> Arc<Door> {
        let door = Door::open(Arc::clone(&self.authority), Arc::clone(&self.clock));
        Arc::new(door.expect("a door"))
    }

    /// A leaf that the authority issues for an identity.
    pub(super) fn leaf(&self, id: &SpiffeId) -> Leaf {
        let key = KeyPair::generate().expect("a key");
        let request = CertificateParams::default().serialize_request(&key);
        let request = CertificateRequest::parse(request.expect("a request").der());
        let now = at(self.clock.now());
        let issued = self.authority.issue(id, &request.expect("a request"), now);
        let chain = issued.expect("a leaf").chain;
        let chain = chain.iter().map(|der| der.to_vec()).collect();
        Leaf::new(chain, &Zeroizing::new(key.serialize_der())).expect("a leaf")
    }
}
