use std::fs;
use std::net::SocketAddr;
use std::os::unix::fs::PermissionsExt;
use std::sync::Mutex;

use heddle_model::{
    Mode, NodeName, Random, ServiceAccountName, TrustDomain, Workload, WorkloadName,
};
use heddle_transport::Clock;
use heddle_xds::{Bundle, DenyList};
use rcgen::{CertificateParams, Issuer, KeyPair, SanType};
use tokio::sync::{mpsc, watch};

use super::super::core::Core;
use super::super::courier::Event;
use super::super::disk::Unsaved;
use super::super::held_back::HeldBack;
use super::super::key::LeafKey;
use super::super::mesh_file::MeshFile;
use super::super::{Agent, View};
use super::*;
use crate::serving::Change;

/// An authority, and a node's state with a workload's leaf and a mesh.
pub(in crate::agent) struct Kept {
    dir: tempfile::TempDir,
    trusted: Trusted,
    account: SpiffeId,
}

pub(in crate::agent) fn name() -> NodeName {
    NodeName::parse("edge-1").unwrap()
}

fn signed(issuer: &Issuer<'_, KeyPair>, id: &SpiffeId) -> (LeafKey, Vec<CertificateDer<'static>>) {
    let key = LeafKey::generate().unwrap();
    let mut params = CertificateParams::default();
    params.subject_alt_names = vec![SanType::URI(id.to_string().try_into().unwrap())];
    let certificate = params.signed_by(&key, issuer).unwrap();
    (key, vec![certificate.der().clone()])
}

impl Kept {
    pub(in crate::agent) fn new() -> Kept {
        let dir = tempfile::tempdir().unwrap();
        let domain = TrustDomain::default();
        let key = KeyPair::generate().unwrap();
        let mut params = CertificateParams::default();
        params.is_ca = rcgen::IsCa::Ca(rcgen::BasicConstraints::Unconstrained);
        let root = params.self_signed(&key).unwrap().der().clone();
        let issuer = Issuer::new(params, key);
        let trusted = Trusted {
            domain: domain.clone(),
            bundle: Bundle {
                generation: 1,
                roots: vec![root],
            },
            denied: DenyList::default(),
        };
        let own = SpiffeId::node(domain.clone(), name());
        let account = ServiceAccountName::new("shop", "cart").unwrap();
        let kept = Kept {
            account: SpiffeId::workload(domain, account),
            trusted,
            dir,
        };
        let state = kept.open().unwrap();
        let before = SpiffeId::parse("spiffe://before.test/ns/shop/sa/cart").unwrap();
        let (key, chain) = signed(&issuer, &before);
        state.save_leaf(&before, key.pkcs8(), &chain).unwrap();
        let (key, chain) = signed(&issuer, &own);
        state.forget_leaves().unwrap();
        state.save_trust(&kept.trusted).unwrap();
        state.save_leaf(&own, key.pkcs8(), &chain).unwrap();
        let (key, chain) = signed(&issuer, &kept.account);
        state.save_leaf(&kept.account, key.pkcs8(), &chain).unwrap();
        state.save_mesh("first", &Mesh::default()).unwrap();
        state.save_floor(7).unwrap();
        kept
    }

    pub(in crate::agent) fn path(&self, file: &str) -> PathBuf {
        self.dir.path().join("node").join(file)
    }

    fn open(&self) -> Result<State, StateError> {
        opened(&self.path(""))
    }

    fn load(&self) -> Result<Found, String> {
        let state = self.open().map_err(|error| error.to_string())?;
        state.floor().map_err(|error| error.to_string())?;
        state.load(&name()).map_err(|error| error.to_string())
    }

    /// The agent of a node that has just started.
    pub(in crate::agent) fn agent(&self) -> (Agent, mpsc::Receiver<Change>) {
        let state = self.open().unwrap();
        let (own, trusted) = state.load(&name()).unwrap().joined.unwrap();
        let clock = Arc::new(Clock::new(0));
        let control = "control.test:4460";
        let listen = SocketAddr::from(([127, 0, 0, 1], 0));
        let view = View::new(name(), control.to_owned(), listen, Arc::clone(&clock));
        let now = view.now(clock.now());
        let core = Core::new(
            (Arc::clone(&clock), 0),
            (own, trusted),
            Vec::new(),
            control.to_owned(),
            Random::from_system(),
            now,
        );
        let core = Arc::new(Mutex::new(core.unwrap()));
        view.joined(Arc::clone(&core));
        let (changes, served) = mpsc::channel(4);
        let agent = Agent {
            core,
            view: Arc::new(view),
            clock,
            state: Arc::new(state),
            changes,
            credentials: watch::channel(None).0,
            orders: None,
            peer: None,
            unconfirmed: None,
            durable: (1, 0),
            built: None,
            checked: None,
            held_back: HeldBack::default(),
            mesh_file: MeshFile::default(),
            unsaved: Unsaved::default(),
        };
        (agent, served)
    }

    fn leaf_file(&self) -> String {
        format!("leaves/{}", file_of(&self.account))
    }
}

#[test]
fn what_was_kept_is_found_and_no_other_user_can_read_it() {
    let kept = Kept::new();
    let found = kept.load().unwrap();
    let (own, trusted) = found.joined.unwrap();
    assert_eq!(
        own.id().to_string(),
        "spiffe://cluster.local/heddle/node/edge-1"
    );
    assert_eq!(trusted, kept.trusted);
    assert_eq!(found.leaves.len(), 1);
    assert_eq!(*found.leaves[0].id(), kept.account);
    assert_eq!(found.mesh, Some(("first".to_owned(), Mesh::default())));
    assert!(found.problems.is_empty(), "{:?}", found.problems);
    for (file, mode) in [
        ("", 0o700),
        ("leaves", 0o700),
        ("node.leaf", 0o600),
        ("trust.json", 0o600),
        ("mesh.json", 0o600),
        ("floor", 0o600),
        (&kept.leaf_file(), 0o600),
    ] {
        let found = fs::metadata(kept.path(file)).unwrap().permissions().mode();
        assert_eq!(found & 0o7777, mode, "{file}");
    }
    let state = kept.open().unwrap();
    state.forget_leaf(&kept.account).unwrap();
    assert_eq!(state.load(&name()).unwrap().leaves.len(), 0);
}

fn opened(folder: &Path) -> Result<State, StateError> {
    State::open(folder, folder)
}

#[test]
fn the_folder_of_an_authority_is_none_of_a_nodes() {
    for file in OF_AN_AUTHORITY {
        let dir = tempfile::tempdir().unwrap();
        fs::set_permissions(dir.path(), fs::Permissions::from_mode(0o700)).unwrap();
        fs::write(dir.path().join(file), "").unwrap();
        let said = opened(dir.path()).unwrap_err().to_string();
        assert!(
            said.contains(&format!("{file}: a control plane keeps its authority")),
            "{said}"
        );
        assert!(!dir.path().join("leaves").exists());
    }
}

#[test]
fn an_empty_folder_is_a_node_that_has_not_joined() {
    let dir = tempfile::tempdir().unwrap();
    let state = opened(&dir.path().join("node")).unwrap();
    assert!(state.load(&name()).unwrap().joined.is_none());
    assert_eq!(state.floor().unwrap(), 0);
    let second = opened(&dir.path().join("node")).unwrap_err();
    assert!(matches!(second, StateError::Folder(error) if error.is_busy()));
}

#[test]
fn what_a_node_cannot_do_without_is_named_with_a_remedy_when_it_is_damaged() {
    let half = |text: &[u8]| text[..text.len() / 2].to_vec();
    for (file, damage, expected) in [
        (
            "node.leaf",
            Some(half as fn(&[u8]) -> Vec<u8>),
            "join with a new token",
        ),
        (
            "node.leaf",
            Some(|_| b"x".to_vec()),
            "join with a new token",
        ),
        ("trust.json", Some(half), "bring it back from a backup"),
        ("trust.json", None, "it is missing"),
        (
            "floor",
            Some(|_| b"soon".to_vec()),
            "remove it if the clock is right",
        ),
    ] {
        let kept = Kept::new();
        let path = kept.path(file);
        match damage {
            Some(damage) => fs::write(&path, damage(&fs::read(&path).unwrap())).unwrap(),
            None => fs::remove_file(&path).unwrap(),
        }
        let why = kept.load().unwrap_err();
        assert!(why.contains(file) && why.contains(expected), "{why}");
    }
}

#[test]
fn what_can_be_had_again_is_said_and_left_where_it_is() {
    for file in ["mesh.json".to_owned(), Kept::new().leaf_file()] {
        let kept = Kept::new();
        fs::write(kept.path(&file), "damaged").unwrap();
        let found = kept.load().unwrap();
        let [Problem { why, .. }] = &found.problems[..] else {
            panic!("{:?}", found.problems)
        };
        assert!(why.contains(&file) && why.contains("remove it"), "{why}");
        assert_eq!(fs::read(kept.path(&file)).unwrap(), b"damaged");
    }
    // A mesh of another trust domain is a problem, too.
    let kept = Kept::new();
    let mesh = Mesh {
        trust_domain: TrustDomain::parse("other.test").unwrap(),
        ..Mesh::default()
    };
    kept.open().unwrap().save_mesh("first", &mesh).unwrap();
    let problems = kept.load().unwrap().problems;
    assert!(problems[0].why.contains("trust domain other.test"));
    // So is a mesh with broken invariants, although its file is well-formed.
    kept.open().unwrap().save_mesh("first", &broken()).unwrap();
    let found = kept.load().unwrap();
    assert_eq!(found.mesh, None);
    let [Problem { why, .. }] = &found.problems[..] else {
        panic!("{:?}", found.problems)
    };
    assert!(
        why.contains("mesh.json") && why.contains("workloads"),
        "{why}"
    );
}

pub(in crate::agent) fn workload() -> Workload {
    Workload {
        name: WorkloadName::new("shop", "cart").unwrap(),
        labels: heddle_model::Shared::default(),
        service_account: ServiceAccountName::new("shop", "cart").unwrap(),
        address: [127, 0, 0, 1].into(),
        uses: Vec::new(),
        more_addresses: Vec::new(),
        ports: Vec::new(),
        weight: 1,
        node: None,
        mode: Mode::default(),
        policies: Vec::new(),
        probes: Vec::new(),
        qos: Default::default(),
        proxy: heddle_model::Proxy::Node,
        command: None,
    }
}

/// A mesh of the right trust domain, with two workloads of one name.
fn broken() -> Mesh {
    let one = workload();
    Mesh {
        generation: 2,
        workloads: vec![one.clone().into(), one.into()].into(),
        ..Mesh::default()
    }
}

/// A mesh from the control plane is checked before it is stored, reported or served.
#[tokio::test]
async fn a_mesh_that_breaks_its_promises_takes_the_place_of_none() {
    let kept = Kept::new();
    let (mut agent, mut served) = kept.agent();
    let good = Mesh {
        generation: 1,
        ..Mesh::default()
    };
    let arrives = |mesh: &Mesh| Event::Mesh("next".to_owned(), Box::new(mesh.clone()));
    agent.happened(arrives(&good)).await;
    agent.release().await;
    assert!(matches!(served.try_recv(), Ok(Change::Mesh(mesh)) if *mesh == good));
    agent.happened(arrives(&broken())).await;
    agent.release().await;
    assert!(served.try_recv().is_err(), "the last one is still served");
    let problems = agent.view.status().problems;
    let is_said = |problem: &String| problem.contains("the mesh of generation 2 was refused: ");
    assert!(problems.iter().any(is_said), "{problems:?}");
    let kept = agent.state.load(&name()).unwrap();
    assert_eq!(kept.mesh, Some(("next".to_owned(), good)));
}

#[test]
fn a_folder_or_a_key_that_others_can_read_is_refused() {
    for (file, mode) in [("", 0o750), ("node.leaf", 0o640), ("trust.json", 0o604)] {
        let kept = Kept::new();
        fs::set_permissions(kept.path(file), fs::Permissions::from_mode(mode)).unwrap();
        let why = kept.load().unwrap_err();
        assert!(why.contains("others have access"), "{why}");
    }
}

#[test]
fn the_folder_of_another_node_is_refused() {
    let kept = Kept::new();
    let other = NodeName::parse("edge-2").unwrap();
    let why = kept.open().unwrap().load(&other).unwrap_err().to_string();
    assert!(
        why.contains("node/edge-1, not of node edge-2") && why.contains("--state"),
        "{why}"
    );
}

proptest::proptest! {
    /// Any file content is read or refused.
    #[test]
    fn no_file_makes_a_node_panic(bytes in proptest::collection::vec(proptest::num::u8::ANY, 0..600)) {
        let _refused = read_leaf(&bytes);
        let _refused = Trusted::from_json(&bytes);
        let text = [b"-----BEGIN PRIVATE KEY-----\n", bytes.as_slice(), b"\n-----END PRIVATE KEY-----\n"];
        let _refused = read_leaf(&text.concat());
    }
}
