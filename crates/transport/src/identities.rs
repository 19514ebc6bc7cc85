//! Everything that a node needs to call, and to be called, as any of its workloads.

use std::collections::HashMap;
use std::fmt;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use heddle_model::{ServiceAccountName, SpiffeId};
use rustls::client::{Resumption, UnbufferedClientConnection};
use rustls::pki_types::{ServerName, UnixTime};
use rustls::server::{ClientHello, ResolvesServerCert, UnbufferedServerConnection};
use rustls::sign::CertifiedKey;
use rustls::sign::SingleCertAndKey;
use rustls::version::TLS13;
use rustls::{ClientConfig, ServerConfig};
use webpki::KeyUsage;

use crate::resumption::Kept;
use crate::suites::provider;
use crate::tickets::Tickets;
use crate::trust::RootId;
use crate::verify::Verifier;
use crate::{Clock, Leaf, Peer, Protocol, Refusal, Session, Trust};

/// Tickets that a server sends after a handshake.
const TICKETS: usize = 1;

/// Certificates of a node's workloads and of the node itself, and which peers to believe. A snapshot: it
/// is shared by all threads, and replaced when a certificate is renewed or trust changes.
pub struct Identities {
    trust: Arc<Trust>,
    clock: Arc<Clock>,
    accounts: HashMap<ServiceAccountName, Caller>,
    node: Caller,
    server: ServerConfig,
    leaves: Arc<Leaves>,
}

/// An identity as a client.
struct Caller {
    leaf: Arc<Leaf>,
    config: Arc<ClientConfig>,
}

/// Why a destination cannot be called.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum NoIdentity {
    /// There is no certificate for the caller yet.
    Missing,
    /// The caller's certificate has expired.
    Expired,
    /// The destination has a name that TLS cannot carry.
    Unnameable,
    /// The library refuses, which only a fault of ours explains.
    Library(String),
}

impl Identities {
    /// Puts together what a node knows. Of two leaves for one account the one that lasts longer counts.
    ///
    /// # Errors
    /// When the library refuses a configuration.
    pub fn new(
        trust: Arc<Trust>,
        clock: Arc<Clock>,
        node: Arc<Leaf>,
        leaves: impl IntoIterator<Item = Arc<Leaf>>,
    ) -> Result<Identities, rustls::Error> {
        let mut newest: HashMap<ServiceAccountName, Arc<Leaf>> = HashMap::new();
        for leaf in leaves {
            let Some(account) = leaf.id().service_account() else {
                continue;
            };
            let known = newest.get(account);
            if known.is_none_or(|known| known.not_after() < leaf.not_after()) {
                newest.insert(account.clone(), leaf);
            }
        }
        let verifier = Arc::new(Verifier::of_nodes(Arc::clone(&trust)));
        let named = newest
            .values()
            .filter_map(|leaf| Some((leaf.id().server_name()?, Arc::clone(leaf))));
        let leaves = Arc::new(Leaves {
            by_server_name: named.collect(),
            clock: Arc::clone(&clock),
        });
        let server = server(&leaves, &node, &verifier)?;
        let caller = |leaf| caller(leaf, &clock, &verifier);
        let accounts = newest
            .into_iter()
            .map(|(account, leaf)| Ok((account, caller(leaf)?)))
            .collect::<Result<_, rustls::Error>>()?;
        let node = caller(node)?;
        Ok(Identities {
            trust,
            accounts,
            node,
            server,
            leaves,
            clock,
        })
    }

    /// A session with a server that proves to be `destination` and speaks `protocol`, in the name of a workload; in
    /// the node's own, which stands for no workload, when it is not known who calls.
    ///
    /// # Errors
    /// Why there can be none.
    pub fn connect(
        &self,
        source: Option<&ServiceAccountName>,
        destination: &ServiceAccountName,
        protocol: Protocol,
    ) -> Result<Session, NoIdentity> {
        let caller = match source {
            Some(account) => self.accounts.get(account).ok_or(NoIdentity::Missing)?,
            None => &self.node,
        };
        if caller.leaf.not_after() < self.clock.now() {
            return Err(NoIdentity::Expired);
        }
        let expected = SpiffeId::workload(self.trust.domain().clone(), destination.clone());
        let name = expected.server_name().ok_or(NoIdentity::Unnameable)?;
        let name = ServerName::try_from(name).map_err(|_| NoIdentity::Unnameable)?;
        let config = Arc::clone(&caller.config);
        let protocols = vec![protocol.alpn().to_vec()];
        let connection = UnbufferedClientConnection::new_with_alpn(config, name, protocols)
            .map_err(|error| NoIdentity::Library(error.to_string()))?;
        Ok(Session::client(
            connection,
            expected,
            protocol,
            caller.leaf.not_after(),
        ))
    }

    /// A session with a client that has connected.
    ///
    /// # Errors
    /// When the library refuses, which only a fault of ours explains.
    pub fn accept(&self) -> Result<Session, rustls::Error> {
        let asked = Arc::new(Asked {
            leaves: Arc::clone(&self.leaves),
            shown: OnceLock::new(),
            missing: AtomicBool::new(false),
        });
        // Everything in it is shared but the answer to who is asked for.
        let mut config = self.server.clone();
        config.cert_resolver = Arc::clone(&asked) as _;
        let connection = UnbufferedServerConnection::new(Arc::new(config))?;
        Ok(Session::server(connection, asked))
    }

    /// Whether a peer is still to be believed: asked after each handshake, since a resumed one verifies no
    /// certificate, and of every session when identities have changed.
    ///
    /// # Errors
    /// Why not.
    pub fn check(&self, peer: &Peer) -> Result<(), Refusal> {
        self.trust.check(peer, self.clock.now())
    }

    /// The root that vouches for the peer of an established session; `None` when none does.
    ///
    /// A session is resumed only among these identities, so that it was one of these roots.
    pub fn root_of(&self, session: &Session) -> Option<RootId> {
        if let Some(only) = self.trust.only_root() {
            return Some(only);
        }
        let (leaf, rest) = session.certificates()?.split_first()?;
        let usage = match session.is_client() {
            true => KeyUsage::server_auth(),
            false => KeyUsage::client_auth(),
        };
        let now = UnixTime::since_unix_epoch(Duration::from_secs(self.clock.now()));
        let verifier = Verifier::new(Arc::clone(&self.trust));
        let (_, root) = verifier.verify_path(leaf, rest, usage, now).ok()?;
        root
    }

    /// When the certificate of an account expires, or the node's own, in seconds since 1970.
    pub fn not_after(&self, account: Option<&ServiceAccountName>) -> Option<u64> {
        let caller = match account {
            Some(account) => self.accounts.get(account)?,
            None => &self.node,
        };
        Some(caller.leaf.not_after())
    }

    /// The clock by which certificates are judged.
    pub fn clock(&self) -> &Arc<Clock> {
        &self.clock
    }

    /// Which peers to believe.
    pub fn trust(&self) -> &Arc<Trust> {
        &self.trust
    }
}

impl fmt::Display for NoIdentity {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            NoIdentity::Missing => f.write_str("there is no certificate for the caller yet"),
            NoIdentity::Expired => f.write_str("the caller's certificate has expired"),
            NoIdentity::Unnameable => {
                f.write_str("the name of the destination is too long to be asked for")
            }
            NoIdentity::Library(why) => write!(f, "no session can be made: {why}"),
        }
    }
}

impl std::error::Error for NoIdentity {}

impl fmt::Debug for Identities {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Identities")
            .field("trust", &self.trust)
            .field("node", &self.node.leaf)
            .field("accounts", &self.accounts.keys())
            .finish()
    }
}

fn caller(
    leaf: Arc<Leaf>,
    clock: &Arc<Clock>,
    verifier: &Arc<Verifier>,
) -> Result<Caller, rustls::Error> {
    let certified = SingleCertAndKey::from(Arc::clone(&leaf.certified));
    let builder = ClientConfig::builder_with_details(provider(), Arc::clone(clock) as _);
    let mut config = builder
        .with_protocol_versions(&[&TLS13])?
        .dangerous()
        .with_custom_certificate_verifier(Arc::clone(verifier) as _)
        .with_client_cert_resolver(Arc::new(certified));
    config.resumption = Resumption::store(Arc::new(Kept::default()));
    Ok(Caller {
        leaf,
        config: Arc::new(config),
    })
}

fn server(
    leaves: &Arc<Leaves>,
    node: &Leaf,
    verifier: &Arc<Verifier>,
) -> Result<ServerConfig, rustls::Error> {
    let clock = &leaves.clock;
    let all = leaves.by_server_name.values().map(|leaf| leaf.not_after());
    let now = clock.now();
    // One that has expired is shown to no client, and no reason not to resume sessions with the others.
    let lasting = all.chain([node.not_after()]).filter(|until| *until >= now);
    let first_to_expire = lasting.min().unwrap_or(0);
    let unasked = Arc::new(Asked {
        leaves: Arc::clone(leaves),
        shown: OnceLock::new(),
        missing: AtomicBool::new(false),
    });
    let builder = ServerConfig::builder_with_details(provider(), Arc::clone(clock) as _);
    let mut config = builder
        .with_protocol_versions(&[&TLS13])?
        .with_client_cert_verifier(Arc::clone(verifier) as _)
        .with_cert_resolver(unasked);
    config.alpn_protocols = Protocol::ALL.map(|one| one.alpn().to_vec()).into();
    config.ticketer = Arc::new(Tickets::new(Arc::clone(clock), first_to_expire)?);
    config.send_tls13_tickets = TICKETS;
    Ok(config)
}

/// The certificates that clients may ask for.
struct Leaves {
    by_server_name: HashMap<String, Arc<Leaf>>,
    clock: Arc<Clock>,
}

impl Leaves {
    fn find(&self, server_name: &str) -> Option<&Arc<Leaf>> {
        let leaf = self.by_server_name.get(server_name)?;
        // No client would believe one that has expired.
        (leaf.not_after() >= self.clock.now()).then_some(leaf)
    }
}

/// What one client asked for, and was shown: the library keeps it to itself.
pub(crate) struct Asked {
    leaves: Arc<Leaves>,
    shown: OnceLock<Arc<Leaf>>,
    /// It asked for an identity that is not here.
    missing: AtomicBool,
}

impl Asked {
    /// The certificate that the client was shown, or would have been if it had not resumed.
    pub(crate) fn shown(&self) -> Option<&Leaf> {
        self.shown.get().map(Arc::as_ref)
    }

    /// Whether the client asked for an identity that is not here.
    pub(crate) fn is_missing(&self) -> bool {
        self.missing.load(Ordering::Relaxed)
    }
}

impl fmt::Debug for Asked {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Asked").field(&self.shown()).finish()
    }
}

impl ResolvesServerCert for Asked {
    fn resolve(&self, hello: ClientHello<'_>) -> Option<Arc<CertifiedKey>> {
        let leaf = hello.server_name().and_then(|name| self.leaves.find(name));
        let Some(leaf) = leaf else {
            self.missing.store(true, Ordering::Relaxed);
            return None;
        };
        // A client that is asked to begin again asks for the same; the library sees to that.
        let shown = self.shown.get_or_init(|| Arc::clone(leaf));
        Some(Arc::clone(&shown.certified))
    }
}
