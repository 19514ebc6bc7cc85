//! Serving a mesh on this machine, wherever the mesh comes from.
//!
//! The main thread runs everything that is not a request: it binds, takes changes from where the mesh
//! comes from, keeps listeners and processes in step with it, and answers the admin socket. Requests are
//! carried by the proxy's own threads.
//!
//! ```text
//! open doors ─► first mesh ─► start proxy ─► serve ─┬─► change ─► serve
//!                                                   ├─► question ─► answer
//!                                                   ├─► SIGHUP ─► reopen the access log
//!                                                   ├─► SIGTERM ─► drain ─► stop processes ─► end
//!                                                   └─► the holder is gone ─► end
//! ```

mod addresses;
pub mod bind;
mod cores;
mod door;
pub(crate) mod limits;
mod listeners;
mod metrics;
mod node;
mod others;
mod pods;
mod replaced;
pub mod signals;
pub mod start;
mod supervisor;

use std::collections::BTreeSet;
use std::net::SocketAddr;
use std::os::fd::OwnedFd;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context, anyhow};
use heddle_intercept::{Cidr, Client, Event};
use heddle_model::{Mesh, NodeName, SpiffeId, WorkloadName};
use heddle_proxy::Proxy;
use heddle_telemetry::{AccessLog, Registry};
use heddle_transport::Identities;
use tokio::net::{TcpListener, UnixListener};
use tokio::runtime::Builder;
use tokio::sync::{mpsc, oneshot};
use tokio::time::MissedTickBehavior;

use crate::admin::{AdminSocket, Ask, Location, serve_tcp, serve_unix};
use crate::console::Console;
use crate::exit::{Exit, Failure};
use crate::logging;
use crate::program_pages;
use crate::settings::Settings;
use crate::status::{IdentityStatus, RegistryStatus};
use node::{Node, NodeParts};
use pods::Pods;
use signals::{Signal, Signals};
pub(crate) use start::{Claimed, claim, unclaimed};
pub use supervisor::Output;

/// Questions that may wait for the main loop.
const ASKS: usize = 32;
/// How often listeners that could not be opened are tried again.
const RETRY: Duration = Duration::from_secs(5);
/// How often it is made sure that there still is a proxy: without one, a new process is better.
const LOOK: Duration = Duration::from_secs(1);
/// How long after a mesh is served what starting took is over.
const SETTLED: Duration = Duration::from_millis(500);
/// How long the last words may take to be written.
const LAST_WORDS: Duration = Duration::from_secs(1);

/// Starts the log and the runtime, serves, and waits for the last words.
///
/// # Errors
/// What `serve` fails with, or when there is no thread or no runtime.
pub fn in_runtime(
    settings: &Settings,
    serve: impl AsyncFnOnce(Output) -> Result<Exit, Failure>,
) -> Result<Exit, Failure> {
    in_runtime_of(Builder::new_current_thread(), settings, serve)
}

/// The same, with a runtime of another kind.
///
/// # Errors
/// As [`in_runtime`].
pub fn in_runtime_of<T>(
    mut runtime: Builder,
    settings: &Settings,
    serve: impl AsyncFnOnce(Output) -> Result<T, Failure>,
) -> Result<T, Failure> {
    let output = Output {
        stdout: Console::start(std::io::stdout()).context("cannot start a thread")?,
        stderr: Console::start(std::io::stderr()).context("cannot start a thread")?,
    };
    logging::start(
        output.stderr.clone(),
        settings.log.level,
        settings.log.format,
    )
    .context("cannot start the log")?;
    limits::raise();
    let runtime = runtime
        .enable_all()
        .build()
        .context("cannot start the runtime")?;
    let served = runtime.block_on(serve(output.clone()));
    output.stdout.wait_written(LAST_WORDS);
    output.stderr.wait_written(LAST_WORDS);
    served
}

/// What is opened before anything is served, so that a mistake shows at once.
pub struct Doors {
    signals: Signals,
    /// The path is given back when this is dropped.
    _socket: AdminSocket,
    admin: UnixListener,
    metrics: Option<(TcpListener, SocketAddr)>,
    log: Option<AccessLog>,
}

impl Doors {
    /// Opens them, but for the admin socket where it is there already. The access log names the node, if it has a name.
    ///
    /// # Errors
    /// When one of them cannot be.
    pub fn open(
        settings: &Settings,
        node: Option<&NodeName>,
        claimed: Option<Claimed>,
    ) -> Result<Doors, Failure> {
        let signals = Signals::new().context("cannot handle signals")?;
        let claimed = match claimed {
            Some(claimed) => claimed,
            None => claim(&Location::new(settings.admin.socket.clone()))?,
        };
        let (socket, admin) = start::admin_socket(claimed)?;
        Ok(Doors {
            signals,
            _socket: socket,
            admin,
            metrics: start::metrics_listener(settings.admin.metrics)?,
            log: start::access_log(settings, node)?,
        })
    }

    /// Waits for a signal that ends the process, for as long as nothing is served.
    pub async fn stopped(&mut self) {
        while self.signals.next().await != Signal::Stop {}
    }
}

/// What is served, and how it changes.
pub struct Served {
    /// The folder that it comes from.
    pub source: PathBuf,
    /// What is known from the start.
    pub first: Option<(Mesh, Findings)>,
    /// How it changes from then on.
    pub changes: mpsc::Receiver<Change>,
    /// Where other nodes connect. No connection is taken from it before there are identities.
    pub mesh_socket: Option<std::net::TcpListener>,
    /// Says who this node is.
    pub identity: Option<Identity>,
    /// Pods whose traffic is intercepted, where there is a holder.
    pub pods: Option<Held>,
}

/// What a proxy has from its holder.
pub struct Held {
    /// The proxy's end of the channel to its holder.
    pub channel: OwnedFd,
    /// The addresses of which the hooks know that they are the mesh's, and exceptions to that (`false`).
    pub ranges: Vec<(Cidr, bool)>,
    /// Where operators ask the holder.
    pub holder_socket: PathBuf,
}

/// Says who this node is.
pub struct Identity {
    /// Says who it is, and for how long.
    pub status: Box<dyn Fn() -> IdentityStatus>,
    /// The identities that it takes from no peer.
    pub denied: Box<dyn Fn() -> Vec<SpiffeId>>,
}

/// What there is to say of a folder that was read, beside the mesh.
#[derive(Default)]
pub struct Findings {
    /// What is wrong with it, one line each.
    pub problems: Vec<String>,
    /// Whether the folder is refused for it.
    pub is_refused: bool,
    /// The workloads that registered by themselves: they are called, and no caller here is one of them.
    pub registered: BTreeSet<WorkloadName>,
    /// Those of them that no Service calls.
    pub uncalled: BTreeSet<WorkloadName>,
    /// Says how the registry is that they registered in, if one is followed.
    pub registry: Option<RegistryView>,
}

/// Says how a registry is.
pub type RegistryView = Box<dyn Fn() -> RegistryStatus + Send>;

/// What the main loop is told by where the mesh comes from.
pub enum Change {
    /// What the folder holds now, if it is right, and what there is to say of it.
    Folder(Option<Mesh>, Box<Findings>),
    /// Another mesh, checked.
    Mesh(Box<Mesh>),
    /// The identities to call as and to be called as. The sender is told when they are in force.
    Identities(Arc<Identities>, oneshot::Sender<()>),
    /// It cannot go on.
    Failed(Failure),
}

/// Opens the listener for other nodes.
///
/// # Errors
/// When the address is in use, or is none of this machine.
pub fn bind_mesh(at: SocketAddr) -> Result<(std::net::TcpListener, SocketAddr), Failure> {
    let bound = bind::bind(at, bind::Instead::Never);
    Ok(bound.context("other nodes cannot connect: choose another address with --listen")?)
}

/// Serves until a signal ends it.
///
/// # Errors
/// When the proxy cannot be started, or ends by a fault of its own.
pub async fn serve(
    doors: Doors,
    settings: Settings,
    output: Output,
    served: Served,
) -> Result<Exit, Failure> {
    let Doors {
        mut signals,
        _socket,
        admin,
        metrics,
        log,
    } = doors;
    let Served {
        source,
        first,
        mut changes,
        mesh_socket,
        identity,
        pods,
    } = served;
    let registry = Arc::new(Registry::with_bounds(heddle_telemetry::SeriesBounds {
        label_sets: settings.admin.metric_series.size(),
        ..heddle_telemetry::SeriesBounds::default()
    }));
    let mut data_plane = settings.proxy.settings();
    let mesh = first
        .as_ref()
        .map(|(mesh, findings)| (mesh, &findings.registered));
    let shares = limits::shares(start::wanted(mesh, &settings))?;
    data_plane.bounds.connections = shares.clients;
    data_plane.workers.max = shares.workers;
    let proxy = Proxy::start(data_plane, Arc::clone(&registry), log.clone())
        .context("cannot start the proxy")?;
    let supervisor = start::supervisor(&settings, &output);
    let (mut holder, pods) = match pods {
        Some(held) => {
            let (client, pods) = Pods::new(held, &proxy)?;
            (Some(client), Some(pods))
        }
        None => (None, None),
    };
    let metrics_at = metrics.as_ref().map(|(_, address)| *address);
    let parts = NodeParts {
        source,
        metrics_at,
        shares,
        registry,
        proxy,
        supervisor,
        log,
        mesh_socket,
        identity,
        pods,
    };
    let mut node = Node::new(parts, settings, output.stdout);
    if let Some((mesh, findings)) = first {
        node.change(Change::Folder(Some(mesh), Box::new(findings)))?;
    }

    let (asks, mut questions) = mpsc::channel::<Ask>(ASKS);
    tokio::spawn(serve_unix(admin, asks.clone()));
    if let Some((tcp, _)) = metrics {
        tokio::spawn(serve_tcp(tcp, asks));
    }
    let mut retry = tokio::time::interval(RETRY);
    // It is mostly not waited for; what was missed is not made up for.
    retry.set_missed_tick_behavior(MissedTickBehavior::Delay);
    let mut look = tokio::time::interval(LOOK);
    look.set_missed_tick_behavior(MissedTickBehavior::Delay);
    let mut is_settled = false;
    loop {
        tokio::select! {
            signal = signals.next() => match signal {
                Signal::Stop => break,
                Signal::Reopen => node.reopen_log(),
            },
            Some(change) = changes.recv() => node.change(change)?,
            Some(ask) = questions.recv() => node.answer(ask),
            event = heard(&mut holder) => match event {
                Some(event) => node.pod(event),
                None => return Ok(gone_with_holder()),
            },
            _ = look.tick() => {
                node.look_at_pods();
                if !node.is_alive() {
                    return Err(anyhow!("the proxy has ended by a fault of its own").into());
                }
                if !is_settled && node.serves_since(SETTLED) {
                    is_settled = true;
                    settle();
                }
            }
            _ = retry.tick(), if node.has_listener_problems() => node.retry_listeners(),
        }
    }

    tracing::info!("stopping: a second signal, half a second from now or later, stops at once");
    let ending = node.drain();
    tokio::pin!(ending);
    loop {
        tokio::select! {
            () = &mut ending => break,
            signal = signals.next() => if signal == Signal::Stop {
                tracing::warn!("stopped at once");
                return Ok(Exit::Failed);
            },
            Some(ask) = questions.recv() => node.answer(ask),
            // Sockets for connections that are not over arrive by it.
            event = heard(&mut holder) => if event.is_none() {
                return Ok(gone_with_holder());
            },
        }
    }
    tracing::info!("stopped");
    Ok(Exit::Ok)
}

/// Starting is over: what only it took is given back.
fn settle() {
    heddle_proxy::give_back_heap();
    match program_pages::give_back() {
        Ok(_) => tracing::debug!("pages of the program that starting took are given back"),
        Err(error) => tracing::debug!(%error, "pages of the program that starting took are kept"),
    }
}

/// A proxy does not outlive its holder, whether it was draining or not: what it holds, the next one needs. The kernel
/// has ended it by now, unless something keeps the kernel from that.
fn gone_with_holder() -> Exit {
    tracing::error!("the holder of the pods is gone: this proxy ends with it");
    Exit::Failed
}

/// What the holder says next, `None` when it is gone; never, where there is none.
async fn heard(holder: &mut Option<Client>) -> Option<Event> {
    match holder {
        Some(client) => client.next().await,
        None => std::future::pending().await,
    }
}
