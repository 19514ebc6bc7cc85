//! `heddle up`: control plane and node proxy in one process.
//!
//! The main thread runs everything that is not a request: it binds, watches the folder, keeps
//! listeners and processes in step with the mesh, and answers the admin socket. Requests are
//! carried by the proxy's own threads.
//!
//! ```text
//! bind ─► load ─► start proxy ─► serve ─┬─► folder changed ─► serve
//!                                       ├─► question ─► answer
//!                                       ├─► SIGHUP ─► reopen the access log
//!                                       └─► SIGTERM ─► drain ─► stop processes ─► end
//! ```

mod addresses;
mod bind;
mod cores;
mod limits;
mod listeners;
mod metrics;
mod node;
mod signals;
mod start;
mod supervisor;

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context, anyhow};
use heddle_control::Watcher;
use heddle_proxy::Proxy;
use heddle_telemetry::Registry;
use tokio::sync::mpsc;
use tokio::time::MissedTickBehavior;

use crate::admin::{Ask, serve_tcp, serve_unix};
use crate::console::Console;
use crate::exit::{Exit, Failure};
use crate::logging;
use crate::settings::Settings;
use crate::table;
use node::{Node, Parts};
use signals::{Signal, Signals};
use supervisor::Output;

/// Questions that may wait for the main loop.
const ASKS: usize = 32;
/// How often listeners that could not be opened are tried again.
const RETRY: Duration = Duration::from_secs(5);
/// How often it is made sure that there still is a proxy: without one, a new process is better.
const LOOK: Duration = Duration::from_secs(1);
/// How long the last words may take to be written.
const LAST_WORDS: Duration = Duration::from_secs(1);

/// Serves the folder until a signal ends it.
///
/// # Errors
/// When something is missing that is needed from the start: the admin socket, the metrics
/// address, the access log, a valid configuration.
pub(crate) fn run(dir: PathBuf, settings: Settings) -> Result<Exit, Failure> {
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
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .context("cannot start the runtime")?;
    let served = runtime.block_on(serve(dir, settings, output.clone()));
    output.stdout.wait_written(LAST_WORDS);
    output.stderr.wait_written(LAST_WORDS);
    served
}

async fn serve(dir: PathBuf, settings: Settings, output: Output) -> Result<Exit, Failure> {
    let mut signals = Signals::new().context("cannot handle signals")?;
    // The path is given back when this function ends.
    let (_socket, admin) = start::admin_socket(&settings)?;
    let metrics = start::metrics_listener(settings.admin.metrics)?;
    let log = start::access_log(&settings)?;
    let mut watcher = Watcher::new(&dir);
    let (mesh, report) = start::first_mesh(&mut watcher, &dir).await?;

    let registry = Arc::new(Registry::new());
    let mut data_plane = settings.proxy.settings();
    let shares = limits::shares(start::wanted(&mesh, &settings))?;
    data_plane.bounds.connections = shares.clients;
    data_plane.workers.max = shares.workers;
    let proxy = Proxy::start(data_plane, Arc::clone(&registry), log.clone())
        .context("cannot start the proxy")?;
    let supervisor = start::supervisor(&settings, &output);
    let metrics_at = metrics.as_ref().map(|(_, address)| *address);
    let parts = Parts {
        dir,
        metrics_at,
        shares,
        registry,
        proxy,
        supervisor,
        log,
    };
    let mut node = Node::new(parts, settings);
    node.folder_changed(Some(mesh), &report);
    output
        .stdout
        .line(table::first_listeners(&node.listeners()).into_bytes());

    let (asks, mut questions) = mpsc::channel::<Ask>(ASKS);
    tokio::spawn(serve_unix(admin, asks.clone()));
    if let Some((tcp, _)) = metrics {
        tokio::spawn(serve_tcp(tcp, asks));
    }
    let mut changes = start::follow(watcher);
    let mut retry = tokio::time::interval(RETRY);
    // It is mostly not waited for; what was missed is not made up for.
    retry.set_missed_tick_behavior(MissedTickBehavior::Delay);
    let mut look = tokio::time::interval(LOOK);
    look.set_missed_tick_behavior(MissedTickBehavior::Delay);
    loop {
        tokio::select! {
            signal = signals.next() => match signal {
                Signal::Stop => break,
                Signal::Reopen => node.reopen_log(),
            },
            Some((mesh, report)) = changes.recv() => node.folder_changed(mesh, &report),
            Some(ask) = questions.recv() => node.answer(ask),
            _ = look.tick() => {
                if !node.is_alive() {
                    return Err(anyhow!("the proxy has ended by a fault of its own").into());
                }
            }
            _ = retry.tick(), if node.has_listener_problems() => node.retry_listeners(),
        }
    }

    tracing::info!("stopping: a second signal stops at once");
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
        }
    }
    tracing::info!("stopped");
    Ok(Exit::Ok)
}
