//! The certificates and trust with which a node acts as client and server for any of its workloads.

use std::collections::HashMap;
use std::fmt;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use heddle_model::{ServiceAccountName, SpiffeId, StockDestination, StockName, TrustDomain};
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
use crate::verify::{PeerKind, Verifier};
use crate::{Clock, Leaf, Peer, Protocol, Refusal, Session, Trust};

/// Tickets that a server sends after each handshake.
const TICKETS: usize = 1;

/// Certificates of a node's workloads and of the node itself, and the [`Trust`] for peers. An immutable snapshot: all
/// threads share it, and it is replaced when a certificate is renewed or the trust changes.
pub struct Identities {
    trust: Arc<Trust>,
    clock: Arc<Clock>,
    accounts: HashMap<ServiceAccountName, Caller>,
    node: Caller,
    server: ServerConfig,
    leaves: Arc<Leaves>,
}

/// A client identity and its TLS configuration.
struct Caller {
    leaf: Arc<Leaf>,
    config: Arc<ClientConfig>,
    /// The same towards stock proxies, made on first use. It has tickets of its own: no session with a stock proxy is
    /// resumed as one with a node, nor the reverse.
    stock: OnceLock<Arc<ClientConfig>>,
}

/// Why [`Identities::connect`] cannot start a session.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum NoIdentity {
    /// The calling workload has no certificate yet.
    Missing,
    /// The caller's certificate has expired.
    Expired,
    /// The destination's server name is too long for TLS.
    Unnameable,
    /// rustls rejects the configuration or the name: a bug in Heddle.
    Library(String),
}

impl Identities {
    /// Builds the snapshot. When an account has two leaves, the one that expires later is used.
    ///
    /// # Errors
    /// When rustls rejects a configuration.
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
        let verifier = Arc::new(Verifier::of(PeerKind::Node, Arc::clone(&trust)));
        let named = newest
            .values()
            .filter_map(|leaf| Some((leaf.id().server_name()?, Arc::clone(leaf))));
        let leaves = Arc::new(Leaves {
            domain: trust.domain().clone(),
            by_server_name: named.collect(),
            clock: Arc::clone(&clock),
        });
        // The session checks that the kind of peer fits the protocol.
        let server = server(&leaves, &node, &Arc::new(Verifier::new(Arc::clone(&trust))))?;
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

    /// Starts a client session that requires the server to prove `destination` and to speak `protocol`. It shows the
    /// certificate of the workload `source`, or, when the caller is unknown, the node's own certificate, which stands
    /// for no workload.
    ///
    /// # Errors
    /// See [`NoIdentity`].
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
        self.start(caller, &caller.config, destination, protocol)
    }

    /// Starts a client session with the stock proxy of a workload, such as an Envoy, that has to prove `destination`
    /// with a certificate of its own, and to speak `protocol`. It shows the certificate of the workload `source`: a
    /// stock proxy accepts none that stands for no workload.
    ///
    /// # Errors
    /// See [`NoIdentity`].
    pub fn connect_stock(
        &self,
        source: &ServiceAccountName,
        destination: &ServiceAccountName,
        protocol: Protocol,
    ) -> Result<Session, NoIdentity> {
        debug_assert!(protocol.is_stock());
        let caller = self.accounts.get(source).ok_or(NoIdentity::Missing)?;
        let config = caller.stock.get_or_init(|| {
            let verifier = Verifier::of(PeerKind::Workload, Arc::clone(&self.trust));
            let mut config = ClientConfig::clone(&caller.config);
            config
                .dangerous()
                .set_certificate_verifier(Arc::new(verifier));
            config.resumption = Resumption::store(Arc::new(Kept::default()));
            Arc::new(config)
        });
        self.start(caller, config, destination, protocol)
    }

    fn start(
        &self,
        caller: &Caller,
        config: &Arc<ClientConfig>,
        destination: &ServiceAccountName,
        protocol: Protocol,
    ) -> Result<Session, NoIdentity> {
        if caller.leaf.not_after() < self.clock.now() {
            return Err(NoIdentity::Expired);
        }
        let expected = SpiffeId::workload(self.trust.domain().clone(), destination.clone());
        let name = expected.server_name().ok_or(NoIdentity::Unnameable)?;
        let name = ServerName::try_from(name).map_err(|_| NoIdentity::Unnameable)?;
        let config = Arc::clone(config);
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

    /// Starts a server session for an accepted connection.
    ///
    /// # Errors
    /// When rustls rejects the configuration: a bug in Heddle.
    pub fn accept(&self) -> Result<Session, rustls::Error> {
        let asked = Arc::new(Asked {
            leaves: Arc::clone(&self.leaves),
            shown: OnceLock::new(),
            destination: OnceLock::new(),
            missing: AtomicBool::new(false),
        });
        // Only the certificate resolver is per connection; the clone shares everything else.
        let mut config = self.server.clone();
        config.cert_resolver = Arc::clone(&asked) as _;
        let connection = UnbufferedServerConnection::new(Arc::new(config))?;
        Ok(Session::server(connection, asked))
    }

    /// Whether a peer is still trusted. Called after each handshake, because a resumed one verifies no certificate, and
    /// for every session when the identities have changed.
    ///
    /// # Errors
    /// Why the peer is rejected.
    pub fn check(&self, peer: &Peer) -> Result<(), Refusal> {
        self.trust.check(peer, self.clock.now())
    }

    /// The root under which the peer's chain verifies; `None` when no root does.
    ///
    /// Sessions are resumed only within one set of identities, so a resumed session's peer was also verified under one
    /// of these roots.
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

    /// When the certificate of an account (the node's own for `None`) expires, in seconds since 1970.
    pub fn not_after(&self, account: Option<&ServiceAccountName>) -> Option<u64> {
        let caller = match account {
            Some(account) => self.accounts.get(account)?,
            None => &self.node,
        };
        Some(caller.leaf.not_after())
    }

    /// The clock that decides whether a certificate is valid.
    pub fn clock(&self) -> &Arc<Clock> {
        &self.clock
    }

    /// The roots and the deny-list for peers.
    pub fn trust(&self) -> &Arc<Trust> {
        &self.trust
    }
}

impl fmt::Display for NoIdentity {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            NoIdentity::Missing => f.write_str("there is no certificate for the caller yet"),
            NoIdentity::Expired => f.write_str("the caller's certificate has expired"),
            NoIdentity::Unnameable => f.write_str("the destination's name is too long for TLS"),
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
        stock: OnceLock::new(),
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
    // An expired leaf is never shown to a client, so it must not prevent resumption for the others.
    let lasting = all.chain([node.not_after()]).filter(|until| *until >= now);
    let first_to_expire = lasting.min().unwrap_or(0);
    let unasked = Arc::new(Asked {
        leaves: Arc::clone(leaves),
        shown: OnceLock::new(),
        destination: OnceLock::new(),
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

/// The node's leaf certificates by server name.
struct Leaves {
    domain: TrustDomain,
    by_server_name: HashMap<String, Arc<Leaf>>,
    clock: Arc<Clock>,
}

impl Leaves {
    fn find(&self, server_name: &str) -> Option<&Arc<Leaf>> {
        let leaf = self.by_server_name.get(server_name)?;
        // Every client would reject an expired leaf.
        (leaf.not_after() >= self.clock.now()).then_some(leaf)
    }
}

/// The server name that one client asked for, and the leaf it was shown. rustls does not expose either.
pub(crate) struct Asked {
    leaves: Arc<Leaves>,
    shown: OnceLock<Arc<Leaf>>,
    /// What a stock proxy has asked for.
    destination: OnceLock<StockDestination>,
    /// The client asked for an identity that this node does not have.
    missing: AtomicBool,
}

impl Asked {
    /// The leaf that the client was shown, or would have been shown without resumption.
    pub(crate) fn shown(&self) -> Option<&Leaf> {
        self.shown.get().map(Arc::as_ref)
    }

    /// What the client has asked for, if it offers only protocols of stock proxies.
    pub(crate) fn destination(&self) -> Option<&StockDestination> {
        self.destination.get()
    }

    /// The leaf for which a client asks. Between nodes the server name is that of an identity; a stock proxy has a
    /// [`StockDestination`]. A name of one kind can also be one of the other, so the offered protocols decide.
    fn find(&self, hello: &ClientHello<'_>) -> Option<&Arc<Leaf>> {
        let name = hello.server_name()?;
        let offers = |stock: bool| {
            let mut known = hello.alpn().into_iter().flatten().filter_map(Protocol::of);
            known.any(|one| one.is_stock() == stock)
        };
        // Of several kinds, the one that this server prefers.
        if offers(false) || !offers(true) {
            return self.leaves.find(name);
        }
        let destination = StockDestination::parse(&self.leaves.domain, name)?;
        let leaf = self.leaves.find(StockName::identity_of(name)?)?;
        self.destination.get_or_init(|| destination);
        Some(leaf)
    }

    /// Whether the client asked for an identity that this node does not have.
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
        let Some(leaf) = self.find(&hello) else {
            self.missing.store(true, Ordering::Relaxed);
            return None;
        };
        // After a HelloRetryRequest the client asks for the same name; rustls enforces that.
        let shown = self.shown.get_or_init(|| Arc::clone(leaf));
        Some(Arc::clone(&shown.certified))
    }
}
