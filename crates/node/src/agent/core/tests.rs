//! Nodes with a real authority, real sessions between them, and a clock that only the test moves.

use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use heddle_authority::{
    Authority, AuthoritySettings, CertificateRequest, Denied, DenyEntry, NextRoot, Serial,
    UnixTime, request_site,
};
use heddle_model::{NodeName, ServiceAccountName, TrustDomain, Workload, WorkloadName};
use heddle_transport::{NoIdentity, Protocol, TlsError};
use heddle_xds::{Bundle, DenyList};

use super::super::key::LeafKey;
use super::*;

mod deny;
mod offline;
mod renewal;

const START: u64 = 1_780_000_000;
const HOUR: u64 = 3_600;
const DAY: u64 = 24 * HOUR;

fn at(seconds: u64) -> UnixTime {
    UnixTime::since_unix_epoch(Duration::from_secs(seconds))
}

fn domain() -> TrustDomain {
    TrustDomain::default()
}

fn account(name: &str) -> ServiceAccountName {
    ServiceAccountName::new("shop", name).unwrap()
}

fn id(name: &str) -> SpiffeId {
    SpiffeId::workload(domain(), account(name))
}

/// A mesh whose workloads run as these accounts.
fn mesh(accounts: &[&str]) -> Mesh {
    let workload = |name: &&str| Workload {
        name: WorkloadName::new("shop", name).unwrap(),
        labels: heddle_model::Shared::default(),
        service_account: account(name),
        address: [127, 0, 0, 1].into(),
        uses: Vec::new(),
        more_addresses: Vec::new(),
        ports: Vec::new(),
        weight: 1,
        node: None,
        mode: heddle_model::Mode::default(),
        policies: Vec::new(),
        probes: Vec::new(),
        qos: Default::default(),
        proxy: heddle_model::Proxy::Node,
        command: None,
    };
    Mesh {
        workloads: accounts.iter().map(workload).map(Into::into).collect(),
        ..Mesh::default()
    }
}

/// A root authority, and the folder of a site whose intermediate the root signed for this many days.
fn root_and_site(dir: &Path, days: u64) -> (Authority, PathBuf) {
    let settings = AuthoritySettings::default();
    let root = Authority::open(&dir.join("root"), &domain(), settings, at(START)).unwrap();
    let folder = dir.join("site");
    let request = request_site(&folder, &domain()).unwrap();
    let request = CertificateRequest::parse(&request).unwrap();
    let life = Duration::from_secs(days * DAY);
    let signed = root.sign_site(&request, life, at(START)).unwrap();
    std::fs::write(folder.join("intermediate.pem"), signed.intermediate_pem).unwrap();
    std::fs::write(folder.join("root.pem"), signed.roots_pem).unwrap();
    (root, folder)
}

fn bundle(authority: &Authority) -> Bundle {
    let bundle = authority.trust().bundle;
    Bundle {
        generation: bundle.generation,
        roots: bundle.roots.clone(),
    }
}

fn deny_list(authority: &Authority) -> DenyList {
    let denied = authority.trust().denied;
    let entries = denied.entries().map(|(what, entry)| heddle_xds::DenyEntry {
        what: match what {
            Denied::Serial(serial) => heddle_xds::Denied::Serial(*serial.as_bytes()),
            Denied::Identity(id) => heddle_xds::Denied::Identity(id.clone()),
        },
        expires: entry.expires,
    });
    DenyList {
        generation: denied.generation,
        entries: entries.collect(),
    }
}

/// The machine's clock, and the uptime of its process.
#[derive(Clone)]
struct Time {
    system: Arc<AtomicU64>,
    elapsed: Arc<AtomicU64>,
}

impl Time {
    fn new(system: u64) -> Time {
        Time {
            system: Arc::new(AtomicU64::new(system)),
            elapsed: Arc::new(AtomicU64::new(0)),
        }
    }

    fn pass(&self, seconds: u64) {
        self.system.fetch_add(seconds, Relaxed);
        self.elapsed.fetch_add(seconds, Relaxed);
    }

    fn clock(&self, floor: u64) -> Arc<Clock> {
        let system = Arc::clone(&self.system);
        Arc::new(Clock::with(floor, move || system.load(Relaxed)))
    }
}

/// A node as its agent runs it, without network; `disk` stands for the state folder.
struct Sim {
    core: Core,
    time: Time,
    disk: Disk,
    identities: Arc<Identities>,
    /// Number of certificates that it received.
    issued: u64,
}

/// What a restart finds.
#[derive(Clone)]
struct Disk {
    joined: (Arc<Leaf>, Trusted),
    leaves: BTreeMap<SpiffeId, Arc<Leaf>>,
    floor: u64,
    accounts: Vec<&'static str>,
}

fn issue(
    authority: &Authority,
    node: Option<&NodeName>,
    id: &SpiffeId,
    now: u64,
) -> Result<Arc<Leaf>, String> {
    let key = LeafKey::generate().unwrap();
    let request = CertificateRequest::parse(&key.request().unwrap()).unwrap();
    let issued = match node {
        Some(node) => authority.issue_to(node, id, &request, at(now)),
        None => authority.issue(id, &request, at(now)),
    };
    let issued = issued.map_err(|error| error.to_string())?;
    let chain = issued.chain.iter().map(|der| der.to_vec()).collect();
    Ok(Arc::new(Leaf::new(chain, key.pkcs8()).unwrap()))
}

impl Sim {
    /// Joins at the machine's current time.
    fn join(authority: &Authority, name: &str, accounts: &[&'static str], time: Time) -> Sim {
        let own = SpiffeId::node(domain(), NodeName::parse(name).unwrap());
        let own = issue(authority, None, &own, time.system.load(Relaxed)).unwrap();
        let trusted = Trusted {
            domain: domain(),
            bundle: bundle(authority),
            denied: DenyList::default(),
        };
        let disk = Disk {
            floor: 0,
            joined: (own, trusted),
            leaves: BTreeMap::new(),
            accounts: accounts.to_vec(),
        };
        let mut sim = Sim::start(disk, time);
        sim.core.clock.raise(sim.disk.joined.0.not_before());
        sim.meet(authority);
        sim.step(Some(authority), 0);
        sim
    }

    /// Starts with what is on the disk.
    fn start(disk: Disk, time: Time) -> Sim {
        time.elapsed.store(0, Relaxed);
        let clock = time.clock(disk.floor);
        let now = Moment {
            unix_s: clock.now(),
            elapsed: Duration::ZERO,
        };
        let leaves = disk.leaves.values().cloned().collect();
        let random = Random::new(disk.floor);
        let joined = disk.joined.clone();
        let mut core = Core::new(
            (clock, disk.floor),
            joined,
            leaves,
            "control:1".to_owned(),
            random,
            now,
        )
        .unwrap();
        core.want(&mesh(&disk.accounts));
        let identities = core.take_identities().unwrap().unwrap();
        Sim {
            core,
            time,
            disk,
            identities,
            issued: 0,
        }
    }

    fn now(&self) -> Moment {
        Moment {
            unix_s: self.core.clock.now(),
            elapsed: Duration::from_secs(self.time.elapsed.load(Relaxed)),
        }
    }

    fn node(&self) -> NodeName {
        NodeName::parse(self.core.name()).unwrap()
    }

    /// Connects to the control plane and applies its trust.
    fn meet(&mut self, authority: &Authority) {
        let now = self.now();
        self.core.link_up(now);
        let update = TrustUpdate {
            bundle: Some(bundle(authority)),
            denied: Some(deny_list(authority)),
        };
        self.core.trust(&update).unwrap();
        self.disk.joined.1 = self.core.trusted().clone();
    }

    /// Lets this many seconds pass; then requests what is due from the authority, if there is one.
    fn step(&mut self, authority: Option<&Authority>, seconds: u64) {
        self.time.pass(seconds);
        let now = self.now();
        self.core.tick(now);
        if authority.is_none() {
            self.core.link_down("away".to_owned(), now);
        }
        while let Some(authority) = authority {
            let due = self.core.due(self.now());
            if due.is_empty() {
                break;
            }
            for id in due {
                // The authority's clock is right, whatever this machine's shows.
                let (node, at) = (self.node(), self.time.system.load(Relaxed));
                match issue(authority, Some(&node), &id, at) {
                    Ok(leaf) => match self.core.issued(&id, Arc::clone(&leaf), self.now()) {
                        Ok(()) if id == self.core.own => {
                            self.issued += 1;
                            self.disk.joined.0 = leaf;
                        }
                        Ok(()) => {
                            self.issued += 1;
                            self.disk.leaves.insert(id, leaf);
                        }
                        Err(_) => {}
                    },
                    Err(why) => self.core.failed(&id, why, self.now()),
                }
            }
        }
        if let Some(identities) = self.core.take_identities().unwrap() {
            self.identities = identities;
        }
        if let Some(floor) = self.core.take_floor() {
            self.disk.floor = floor;
        }
    }

    fn problems(&self) -> Vec<String> {
        self.core.status(self.now()).problems
    }
}

/// The identity that the server sees for the client.
fn call(
    client: &Identities,
    source: &str,
    server: &Identities,
    destination: &str,
) -> Result<Peer, String> {
    let session = client.connect(
        Some(&account(source)),
        &account(destination),
        Protocol::Link,
    );
    let mut session = session.map_err(|error: NoIdentity| format!("{error:?}"))?;
    let mut answering = server.accept().unwrap();
    let (mut up, mut down) = (Vec::new(), Vec::new());
    let refused = |error: TlsError| error.to_string();
    session
        .receive(&mut [], &mut up, &mut |_| {})
        .map_err(refused)?;
    while !(up.is_empty() && down.is_empty()) {
        let received = answering.receive(&mut std::mem::take(&mut up), &mut down, &mut |_| {});
        received.map_err(refused)?;
        let received = session.receive(&mut std::mem::take(&mut down), &mut up, &mut |_| {});
        received.map_err(refused)?;
    }
    let peer = answering.peer().cloned().unwrap();
    server.check(&peer).map_err(|refusal| refusal.to_string())?;
    Ok(peer)
}
