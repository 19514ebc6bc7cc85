//! Serving a mesh on this machine, wherever the mesh comes from.
//!
//! The main thread runs everything except requests: it binds, takes changes from the mesh's source, keeps listeners and
//! processes in step with the mesh, and answers the admin socket. The proxy's own threads carry the requests.
//!
//! ```text
//! open doors ─► first mesh ─► start proxy ─► serve ─┬─► change ─► serve
//!                                                   ├─► question ─► answer
//!                                                   ├─► SIGHUP ─► log settings, reopen the access log
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
#[cfg(test)]
mod tests;

use std::collections::BTreeSet;
use std::net::SocketAddr;
use std::os::fd::OwnedFd;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::{Context, anyhow};
use heddle_intercept::{Client, Event};
use heddle_model::report::Report;
use heddle_model::{Cidr, Mesh, NodeName, SpiffeId, WorkloadName};
use heddle_proxy::{AccessSink, Proxy, Questions};
use heddle_telemetry::{AccessLog, Registry};
use heddle_transport::Identities;
use tokio::net::{TcpListener, UnixListener};
use tokio::runtime::{Builder, Runtime};
use tokio::sync::{mpsc, oneshot};
use tokio::time::MissedTickBehavior;

use crate::admin::{AdminSocket, Ask, Location, Question, serve_tcp, serve_unix};
use crate::console::Console;
use crate::exit::{Exit, Failure};
use crate::logging;
use crate::program_pages;
use crate::service_manager::ServiceManager;
use crate::settings::{Settings, SettingsError};
use crate::status::{DiscoveryStatus, IdentityStatus, RegistryStatus};
use node::{Node, NodeParts};
use pods::Pods;
use signals::{Signal, Signals};
pub(crate) use start::{Claimed, claim, unclaimed};
pub use supervisor::Output;

/// Capacity of the queue of questions to the main loop.
const ASKS: usize = 32;
/// Time between two retries of listeners that could not be opened.
const RETRY: Duration = Duration::from_secs(5);
/// Time between two checks that the proxy still runs: without it this process ends, so that a new one is started.
const LOOK: Duration = Duration::from_secs(1);
/// How long the mesh must be unchanged before memory that only the start needed is given back.
const SETTLED: Duration = Duration::from_millis(500);
/// How long the mesh must be unchanged before memory of what was forgotten is given back: Workers have let go of it by
/// then.
const FORGOTTEN: Duration = Duration::from_secs(2);
/// Time between two looks for metric series that nothing uses.
const SERIES: Duration = Duration::from_secs(60);
/// Longest wait at exit for buffered output to be written.
const LAST_WORDS: Duration = Duration::from_secs(1);

/// Starts the log and a current-thread runtime, runs `serve`, and waits until buffered output is written.
///
/// # Errors
/// The error of `serve`; or when a thread or the runtime cannot be started.
pub fn in_runtime(
    settings: &Settings,
    serve: impl AsyncFnOnce(Output) -> Result<Exit, Failure>,
) -> Result<Exit, Failure> {
    in_runtime_of(Builder::new_current_thread(), settings, serve)
}

/// Like [`in_runtime`], with a runtime of another kind.
///
/// # Errors
/// As [`in_runtime`].
pub fn in_runtime_of<T>(
    runtime: Builder,
    settings: &Settings,
    serve: impl AsyncFnOnce(Output) -> Result<T, Failure>,
) -> Result<T, Failure> {
    // Blocking calls are waited for: they may write files.
    in_runtime_to_end(runtime, settings, serve, drop)
}

/// Like [`in_runtime_of`], but blocking calls that go on at the end are not waited for.
///
/// # Errors
/// As [`in_runtime`].
pub fn in_runtime_at_once<T>(
    runtime: Builder,
    settings: &Settings,
    serve: impl AsyncFnOnce(Output) -> Result<T, Failure>,
) -> Result<T, Failure> {
    in_runtime_to_end(runtime, settings, serve, Runtime::shutdown_background)
}

fn in_runtime_to_end<T>(
    mut runtime: Builder,
    settings: &Settings,
    serve: impl AsyncFnOnce(Output) -> Result<T, Failure>,
    end: fn(Runtime),
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
    end(runtime);
    served
}

/// Sockets, signals and log that are opened before anything is served, so that a mistake shows at once.
pub struct Doors {
    signals: Signals,
    /// Removes the socket's path when it is dropped.
    _socket: AdminSocket,
    admin: UnixListener,
    metrics: Option<(TcpListener, SocketAddr)>,
    log: AccessLog,
}

impl Doors {
    /// Opens all of them; `claimed` is the admin socket if it is already bound. The access log names the node, if
    /// `node` is given.
    ///
    /// # Errors
    /// When one of them cannot be opened.
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

    /// Waits for a signal that ends the process, while nothing is served yet.
    pub async fn stopped(&mut self) {
        while self.signals.next().await != Signal::Stop {}
    }
}

/// A mesh to serve, and its changes.
pub struct Served {
    /// The folder that the mesh is read from; shown in the status.
    pub source: PathBuf,
    /// The mesh and the findings at the start, if they are known.
    pub first: Option<(Mesh, Findings)>,
    /// Changes from then on.
    pub changes: mpsc::Receiver<Change>,
    /// The listener for other nodes. No connection is accepted before there are identities.
    pub mesh_socket: Option<std::net::TcpListener>,
    /// Reads this node's identity.
    pub identity: Option<Identity>,
    /// Pods whose traffic is intercepted; `None` without a holder.
    pub pods: Option<Held>,
    /// Of a node that knows only what it uses: what its Workers ask, and what it has learned.
    pub learning: Option<(Questions, LearnedView)>,
    /// Where Workers tell what lazy callers use by this node as their gateway.
    pub accesses: Option<AccessSink>,
    /// Reads the settings again.
    pub reload: Reload,
}

/// Reads the settings file again, with the flags that win over it.
pub type Reload = Box<dyn Fn() -> Result<Settings, SettingsError>>;

/// Reads what a node has learned; the mesh says what each of it costs.
pub type LearnedView = Box<dyn Fn(&Mesh) -> DiscoveryStatus>;

/// What the holder of the pods passed to this proxy.
pub struct Held {
    /// The proxy's end of the channel to its holder.
    pub channel: OwnedFd,
    /// The mesh's address ranges as the hooks know them (`true`), and exceptions to them (`false`).
    pub ranges: Vec<(Cidr, bool)>,
    /// The holder's own socket for operators.
    pub holder_socket: PathBuf,
}

/// Reads this node's identity.
pub struct Identity {
    /// Reads the status of the node's identities.
    pub status: Box<dyn Fn() -> IdentityStatus>,
    /// Reads the identities on the deny-list: they are accepted from no peer.
    pub denied: Box<dyn Fn() -> Vec<SpiffeId>>,
}

/// Results of reading a folder, other than the mesh.
#[derive(Default)]
pub struct Findings {
    /// Errors and warnings, one line each.
    pub problems: Vec<String>,
    /// What of the folder is in force; `None` where there is no folder.
    pub report: Option<Report>,
    /// The workloads that registered themselves: they are called, but no local caller runs as one of them.
    pub registered: BTreeSet<WorkloadName>,
    /// Those of `registered` that are not an endpoint of any Service.
    pub uncalled: BTreeSet<WorkloadName>,
    /// Reads the status of the registry that they registered in, if one is followed.
    pub registry: Option<RegistryView>,
}

/// Reads the status of a registry.
pub type RegistryView = Box<dyn Fn() -> RegistryStatus + Send>;

/// A message to the main loop from the mesh's source.
pub enum Change {
    /// The folder's mesh, if the folder is valid, and the findings.
    Folder(Option<Box<Mesh>>, Box<Findings>),
    /// Another mesh, already checked.
    Mesh(Box<Mesh>),
    /// The identities for calls in both directions. The sender is notified when they are in force.
    Identities(Arc<Identities>, oneshot::Sender<()>),
    /// The source failed for good: the process ends.
    Failed(Failure),
}

/// Opens the listener for other nodes.
///
/// # Errors
/// When the address is in use, or is not an address of this machine.
pub fn bind_mesh(at: SocketAddr) -> Result<(std::net::TcpListener, SocketAddr), Failure> {
    let bound = bind::bind(at, bind::Instead::Never);
    Ok(bound.context("other nodes cannot connect: choose another address with --listen")?)
}

/// Serves until a signal ends it.
///
/// # Errors
/// When the proxy cannot be started, or ends because of a bug.
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
        learning,
        accesses,
        reload,
    } = served;
    let registry = Arc::new(Registry::with_bounds(heddle_telemetry::SeriesBounds {
        label_sets: settings.admin.metric_series.size(),
        ..heddle_telemetry::SeriesBounds::default()
    }));
    let mut data_plane = settings.proxy.settings();
    let (questions, learned) = learning.unzip();
    data_plane.questions = questions;
    data_plane.accesses = accesses;
    let mesh = first
        .as_ref()
        .map(|(mesh, findings)| (mesh, &findings.registered));
    let shares = limits::shares(start::wanted(mesh, &settings))?;
    data_plane.bounds.connections = shares.clients;
    data_plane.workers.max = shares.workers;
    let proxy = Proxy::start(data_plane, Arc::clone(&registry), Some(log.clone()))
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
        learned,
        pods,
    };
    let mut node = Node::new(parts, settings, output.stdout);
    if let Some((mesh, findings)) = first {
        node.change(Change::Folder(Some(Box::new(mesh)), Box::new(findings)))?;
    }

    let (asks, mut questions) = mpsc::channel::<Ask>(ASKS);
    tokio::spawn(serve_unix(admin, asks.clone()));
    if let Some((tcp, _)) = metrics {
        tokio::spawn(serve_tcp(tcp, asks));
    }
    let mut retry = tokio::time::interval(RETRY);
    // Mostly disabled: missed ticks are not made up for.
    retry.set_missed_tick_behavior(MissedTickBehavior::Delay);
    let mut look = tokio::time::interval(LOOK);
    look.set_missed_tick_behavior(MissedTickBehavior::Delay);
    let mut is_settled = false;
    let mut series_due = Instant::now() + SERIES;
    // The holder of a proxy is what the service manager started.
    let mut manager = holder.is_none().then(ServiceManager::default);
    loop {
        tokio::select! {
            signal = signals.next() => match signal {
                Signal::Stop => break,
                Signal::Reload => {
                    let _logged = node.reload(&reload);
                }
            },
            Some(change) = changes.recv() => node.change(change)?,
            Some(ask) = questions.recv() => match ask.question {
                Question::LogReopen => {
                    let answer = node.reload(&reload);
                    let _gone = ask.answer.send(answer);
                }
                _ => node.answer(ask),
            },
            event = heard(&mut holder) => match event {
                Some(event) => node.pod(event),
                None => return Ok(gone_with_holder()),
            },
            _ = look.tick() => {
                node.look_at_pods();
                if !node.is_alive() {
                    return Err(anyhow!("the proxy has ended by itself, which is a bug").into());
                }
                if let Some(manager) = &mut manager {
                    manager.turn(Instant::now(), node.is_ready());
                }
                if !is_settled && node.serves_since(SETTLED) {
                    is_settled = true;
                    settle();
                }
                if Instant::now() >= series_due {
                    series_due = Instant::now() + SERIES;
                    node.forget_series(Instant::now());
                }
                if node.take_forgotten(FORGOTTEN) {
                    settle();
                }
            }
            _ = retry.tick(), if node.has_listener_problems() => node.retry_listeners(),
        }
    }

    tracing::info!("stopping: a second signal, half a second from now or later, stops at once");
    if let Some(manager) = &manager {
        manager.stopping();
    }
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
            // Open connections may still need sockets, which arrive over this channel.
            event = heard(&mut holder) => if event.is_none() {
                return Ok(gone_with_holder());
            },
        }
    }
    tracing::info!("stopped");
    Ok(Exit::Ok)
}

/// Gives back memory that the start, or Services that are forgotten, needed.
fn settle() {
    if let Some(ends) = heddle_proxy::free_kept_blocks() {
        let _freed = ends.join();
    }
    heddle_proxy::give_back_heap();
    match program_pages::give_back() {
        Ok(_) => tracing::debug!("pages of code that may not be needed again are given back"),
        Err(error) => {
            tracing::debug!(%error, "pages of code cannot be given back");
        }
    }
}

/// A proxy does not outlive its holder, even while draining: the next proxy needs the resources that it holds. The
/// kernel normally kills it before this is reached.
fn gone_with_holder() -> Exit {
    tracing::error!("the holder of the pods is gone: this proxy ends with it");
    Exit::Failed
}

/// The holder's next event, or `None` when it is gone. Without a holder this never resolves.
async fn heard(holder: &mut Option<Client>) -> Option<Event> {
    match holder {
        Some(client) => client.next().await,
        None => std::future::pending().await,
    }
}
