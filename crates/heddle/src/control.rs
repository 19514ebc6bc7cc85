//! `heddle control`: the certificate authority, and the mesh for every node of it.
//!
//! ```text
//! bind ─► load folder ─► open authority ─► serve ─┬─► folder changed ─► board ─► every node
//!                                                 ├─► question, order ─► answer
//!                                                 ├─► every half second: leaf, trust, rotation
//!                                                 └─► SIGTERM ─► end calls ─► end
//! ```
//!
//! Decisions, signing and serving are in `heddle_control`; this module adds the socket, clock, TLS and operators'
//! orders.

mod door;
mod envoys;
#[cfg(test)]
mod fixture;
mod keeper;
mod last_good;
mod metrics;
mod orders;
mod plane;

use std::net::SocketAddr;
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::{Context, anyhow};
use heddle_authority::{Authority, AuthorityError, Origin, UnixTime};
use heddle_compile::Watcher;
use heddle_control::{Board, ControlServer, DEPENDENCIES, Nodes, ServeBounds};
use heddle_model::Mesh;
use heddle_model::calendar::utc;
use heddle_model::report::Report;
use heddle_node::admin::{Ask, Location, serve_tcp, serve_unix};
use heddle_node::exit::{Exit, Failure};
use heddle_node::hygiene;
use heddle_node::logging;
use heddle_node::service_manager::ServiceManager;
use heddle_node::serving::bind::{Instead, bind};
use heddle_node::serving::signals::{Signal, Signals};
use heddle_node::serving::{self, start};
use heddle_node::settings::{Settings, SettingsError};
use heddle_node::state_folder;
use heddle_node::table::count;
use heddle_transport::Clock;
use rustix::process::{Resource, getrlimit};
use tokio::net::TcpListener;
use tokio::sync::{mpsc, oneshot};
use tokio::task::JoinHandle;
use tokio::time::MissedTickBehavior;

use crate::registry::Followed;
use crate::{report, settings};
use door::Door;
use keeper::AuthorityKeeper;
use plane::{Plane, PlaneParts, PutUp};

/// Capacity of the queue of questions to the main loop.
const ASKS: usize = 32;
/// Time between two messages to the service manager that the main loop goes on.
const LOOK: Duration = Duration::from_secs(1);
/// Memory that changes of the mesh have left is given back so long after the first one, and at most so often.
const GIVE_BACK_AFTER: Duration = Duration::from_secs(1);
const GIVE_BACK_EVERY: Duration = Duration::from_secs(10);
/// Threads for TLS handshakes and calls of nodes.
const THREADS: usize = 2;
/// Threads for disk access, and for encoding the mesh when nodes come and go.
const BLOCKING_THREADS: usize = 16;
/// Descriptors that are reserved for everything except nodes' connections.
const RESERVED_DESCRIPTORS: u64 = 128;
/// Fewest connections to start with: enough for a few nodes, and one that joins.
const FEWEST_CONNECTIONS: u64 = 8;

/// Serves nodes until a signal ends it.
///
/// # Errors
/// When something is missing at the start: the admin socket, the addresses, the authority, a valid configuration.
pub(crate) fn run(
    dir: &Path,
    settings: &Settings,
    reload: &dyn Fn() -> Result<Settings, SettingsError>,
) -> Result<Exit, Failure> {
    hygiene::keep_memory_to_ourselves().context("cannot keep keys out of core files")?;
    heddle_node::use_one_heap();
    let mut runtime = tokio::runtime::Builder::new_multi_thread();
    runtime
        .worker_threads(THREADS)
        .max_blocking_threads(BLOCKING_THREADS);
    serving::in_runtime_of(runtime, settings, async |_| {
        serve(dir, settings, reload).await
    })
}

async fn serve(
    dir: &Path,
    settings: &Settings,
    reload: &dyn Fn() -> Result<Settings, SettingsError>,
) -> Result<Exit, Failure> {
    let mut signals = Signals::new().context("cannot handle signals")?;
    let bounds = bounds()?;
    // The socket's path is removed when this function ends.
    let location = Location::control(settings.admin.socket.clone());
    let (_socket, admin) = start::admin_socket(start::claim(&location)?)?;
    let metrics = start::metrics_listener(settings.control.metrics)?;
    let (listener, listen) = node_listener(settings.control.listen)?;
    // The authority is opened last: a new root is created only when nothing else prevents serving, since operators back
    // it up.
    let mut watcher = Watcher::with(dir, settings::options_by_node(&settings.mesh));
    let registry = tokio::select! {
        registry = Followed::start(settings) => registry?,
        () = signals.stop() => return Ok(Exit::Ok),
    };
    if let Some(registry) = &registry {
        watcher = watcher.beside(registry.providers());
    }
    let state = state_folder::folder(settings.control.state.clone(), "control")?;
    let recalled = last_good::recall(&mut watcher, &state);
    recalled.context("the last good versions of manifests")?;
    let first = first_mesh(&mut watcher, dir).await?;
    let clock = Arc::new(Clock::new(0));
    let authority = Arc::new(open(&state, settings, &clock)?);
    last_good::save(&mut watcher, &state);

    let nodes = Nodes::default();
    remember(&authority, &nodes, at(&clock)());
    let board = Board::new(nodes.clone()).context("no random bytes")?;
    let door = Arc::new(Door::open(Arc::clone(&authority), Arc::clone(&clock))?);
    let keeper = AuthorityKeeper::new(
        Arc::clone(&authority),
        nodes.clone(),
        Arc::clone(&door),
        Arc::clone(&clock),
    );
    let server = ControlServer::new(
        Arc::clone(&authority),
        board.clone(),
        nodes.clone(),
        at(&clock),
        bounds,
    );
    let forget_after = settings.control.forget_dependencies_after();
    if let Err(why) = server.keep_dependencies(&state, forget_after) {
        tracing::error!(
            "what Envoys learn is not kept in {}, and lost when this process ends: {why}",
            state.join(DEPENDENCIES).display()
        );
    }
    let mut plane = Plane::new(PlaneParts {
        envoys: server.envoys(),
        settings: settings.clone(),
        dir: dir.to_owned(),
        state,
        listen,
        metrics_at: metrics.as_ref().map(|(_, address)| *address),
        authority,
        clock,
        nodes,
        board: board.clone(),
        door: Arc::clone(&door),
        counters: server.counters(),
        registry,
    });
    let (mesh, report) = first;
    plane.folder_changed(Some(&PutUp::put(&board, mesh)), &report);
    let changing = board.clone();
    tokio::spawn(async move { changing.follow_nodes().await });
    tokio::spawn(give_back_heap(board.clone()));
    let (stop, mut served) = start_serving(server, listener, door);
    tracing::info!("nodes are served at {listen}");

    let (asks, mut questions) = mpsc::channel::<Ask>(ASKS);
    tokio::spawn(serve_unix(admin, asks.clone()));
    if let Some((tcp, _)) = metrics {
        tokio::spawn(serve_tcp(tcp, asks));
    }
    let keeping = tokio::spawn(keeper.run());
    let mut changes = follow(watcher, board);
    let mut present = plane.watch_present();
    let mut look = tokio::time::interval(LOOK);
    look.set_missed_tick_behavior(MissedTickBehavior::Delay);
    let mut manager = ServiceManager::default();
    loop {
        tokio::select! {
            signal = signals.next() => match signal {
                Signal::Stop => break,
                // A control plane has no access log: only the level of its own may change.
                Signal::Reload => match reload() {
                    Ok(new) => {
                        logging::set_level(new.log.level);
                        if settings.clone().take_logs(&new) {
                            tracing::warn!("other settings have changed, too: they take effect at the next start");
                        }
                    }
                    Err(error) => tracing::error!("the settings stay as they were: {error}"),
                },
            },
            Some((put, report)) = changes.recv() => {
                plane.folder_changed(put.as_ref(), &report);
            }
            Some(ask) = questions.recv() => plane.answer(ask),
            Ok(()) = present.changed() => plane.nodes_changed(),
            _ = look.tick() => manager.turn(Instant::now(), plane.is_ready()),
            ended = &mut served => return Err(ended_early(ended)),
        }
    }

    tracing::info!("stopping: a second signal, half a second from now or later, stops at once");
    manager.stopping();
    plane.drain();
    keeping.abort();
    // The receiver is gone if serving has ended by itself.
    let _ended = stop.send(());
    loop {
        tokio::select! {
            _ = &mut served => break,
            signal = signals.next() => if signal == Signal::Stop {
                tracing::warn!("stopped at once");
                return Ok(Exit::Failed);
            },
            Some(ask) = questions.recv() => plane.answer(ask),
        }
    }
    tracing::info!("stopped");
    Ok(Exit::Ok)
}

fn node_listener(at: SocketAddr) -> Result<(TcpListener, SocketAddr), Failure> {
    let (listener, listen) = bind(at, Instead::Never)
        .context("nodes cannot be served: choose another address with --listen")?;
    let listener = TcpListener::from_std(listener).context("cannot use the listener for nodes")?;
    if !listen.ip().is_loopback() {
        tracing::info!(
            "{listen} is open to the network: clients without a certificate can only join"
        );
    }
    Ok((listener, listen))
}

/// Opens the authority, and logs its state for the operator.
fn open(state: &Path, settings: &Settings, clock: &Clock) -> Result<Authority, Failure> {
    let now = UnixTime::since_unix_epoch(Duration::from_secs(clock.now()));
    let (domain, lives) = (
        &settings.mesh.trust_domain,
        settings::lifetimes(&settings.control),
    );
    let authority = Authority::open(state, domain, lives, now).map_err(|error| {
        let exit = match &error {
            AuthorityError::Folder(folder) if folder.is_busy() => Exit::Busy,
            _ => Exit::Failed,
        };
        Failure::new(exit, error)
    })?;
    let (folder, until) = (state.display(), utc(authority.expires()));
    match authority.origin() {
        Origin::Made => tracing::info!(
            "a new root for {domain} was made in {folder}, valid until {until}: back the folder up, \
             and keep the backup secret"
        ),
        Origin::Supplied if authority.is_site() => {
            tracing::info!(
                "the site's intermediate for {domain} in {folder} is taken, until {until}"
            );
        }
        Origin::Supplied => {
            tracing::info!("the root for {domain} in {folder} is taken, until {until}");
        }
        Origin::Kept if authority.is_site() => {
            tracing::info!("the authority of a site of {domain} in {folder}, until {until}");
        }
        Origin::Kept => tracing::info!("the authority of {domain} in {folder}, until {until}"),
        Origin::Replaced => {
            tracing::info!("the certificates of this site were replaced, until {until}");
        }
    }
    Ok(authority)
}

/// Loads the addresses of nodes that have not reconnected yet, so that nodes that have can reach them all the same.
fn remember(authority: &Authority, nodes: &Nodes, now: UnixTime) {
    for member in authority.welcome(now) {
        if let Some(address) = member.address {
            nodes.remember(&member.node, address);
        }
    }
}

/// Reads the folder for the first time. If nothing of it can be served, that is fatal.
async fn first_mesh(watcher: &mut Watcher, dir: &Path) -> Result<(Mesh, Report), Failure> {
    let (mesh, report) = watcher.next().await;
    if let Some(mesh) = mesh {
        return Ok((mesh, report));
    }
    report::say(&report);
    let (errors, dir) = (count(report.errors(), "error"), dir.display());
    let refused = anyhow!("{errors} in {dir}, nothing is served");
    Err(Failure::new(Exit::Refused, refused))
}

/// Watches the folder in a task of its own, and puts up its meshes: the main loop is held up by neither.
fn follow(mut watcher: Watcher, board: Board) -> mpsc::Receiver<(Option<PutUp>, Report)> {
    let (sender, changes) = mpsc::channel(1);
    tokio::spawn(async move {
        loop {
            let (mesh, report) = watcher.next().await;
            let put = match mesh {
                Some(mesh) => {
                    let board = board.clone();
                    let putting = tokio::task::spawn_blocking(move || PutUp::put(&board, mesh));
                    match putting.await {
                        Ok(put) => Some(put),
                        Err(error) if error.is_panic() => {
                            std::panic::resume_unwind(error.into_panic())
                        }
                        // The runtime ends.
                        Err(_) => return,
                    }
                }
                None => None,
            };
            if sender.send((put, report)).await.is_err() {
                return;
            }
        }
    });
    changes
}

/// Gives memory back to the system, at intervals in which the mesh has changed: compiling everything takes much more of
/// it than what is left of that. Never returns.
async fn give_back_heap(board: Board) {
    let mut generations = board.generations();
    // Never fails: the board holds the sender.
    while generations.changed().await.is_ok() {
        tokio::time::sleep(GIVE_BACK_AFTER).await;
        generations.borrow_and_update();
        // It fails only when the runtime ends.
        let _ended = tokio::task::spawn_blocking(heddle_node::give_back_heap).await;
        tokio::time::sleep(GIVE_BACK_EVERY).await;
    }
}

/// Serves in a task of its own, until the returned sender is used or dropped, or serving fails.
fn start_serving(
    server: ControlServer,
    listener: TcpListener,
    door: Arc<Door>,
) -> (oneshot::Sender<()>, JoinHandle<Result<(), String>>) {
    let (stop, stopped) = oneshot::channel::<()>();
    let served = tokio::spawn(async move {
        let handshake = move |stream, address| {
            let door = Arc::clone(&door);
            async move { door.shake(stream, address).await }
        };
        // Both a message and a dropped sender stop serving.
        let shutdown = async {
            let _dropped = stopped.await;
        };
        let served = server.serve(listener, handshake, shutdown).await;
        served.map_err(|error| error.to_string())
    });
    (stop, served)
}

fn ended_early(ended: Result<Result<(), String>, tokio::task::JoinError>) -> Failure {
    let why = match ended {
        Ok(Ok(())) => "it ended by itself".to_owned(),
        Ok(Err(error)) => error,
        Err(error) => error.to_string(),
    };
    anyhow!("nodes are not served any more: {why}").into()
}

/// Converts the clock to the form that `heddle_control` takes.
fn at(clock: &Arc<Clock>) -> heddle_control::Clock {
    let clock = Arc::clone(clock);
    Arc::new(move || UnixTime::since_unix_epoch(Duration::from_secs(clock.now())))
}

/// Limits connections to the number of available descriptors.
fn bounds() -> anyhow::Result<ServeBounds> {
    let usual = ServeBounds::default();
    let Some(descriptors) = getrlimit(Resource::Nofile).current else {
        return Ok(usual);
    };
    let most = descriptors.saturating_sub(RESERVED_DESCRIPTORS);
    if most < FEWEST_CONNECTIONS {
        let needed = RESERVED_DESCRIPTORS + FEWEST_CONNECTIONS;
        return Err(anyhow!(
            "{descriptors} open files are too few for a control plane: at least {needed} are needed, and one more \
             for each node beyond {FEWEST_CONNECTIONS}: raise the limit (ulimit -n)"
        ));
    }
    let most = usize::try_from(most).unwrap_or(usize::MAX);
    if most < usual.connections {
        tracing::warn!(
            connections = most,
            "there are few descriptors: raise the limit (ulimit -n) for more nodes than this"
        );
    }
    Ok(ServeBounds {
        connections: usual.connections.min(most),
        ..usual
    })
}
