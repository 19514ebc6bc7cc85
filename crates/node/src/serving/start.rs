//! Preparations before anything is served. Each error names what the user can correct.

use std::collections::BTreeSet;
use std::io;
use std::net::SocketAddr;
use std::path::Path;

use anyhow::{Context, anyhow};
use heddle_model::{Mesh, NodeName, WorkloadName};
use heddle_telemetry::{AccessLog, Target};
use rustix::process::geteuid;
use tokio::net::{TcpListener, UnixListener};

use super::bind::{Instead, bind};
use super::cores;
use super::limits::DescriptorDemand;
use super::listeners;
use super::supervisor::{Output, Policy, Supervisor};
use crate::admin::{AdminSocket, Location, SocketError};
use crate::exit::{Exit, Failure};
use crate::settings::{Metrics, Settings};

/// The admin socket's path, held until the first value is dropped, and its listener.
pub type Claimed = (AdminSocket, std::os::unix::net::UnixListener);

/// Binds the admin socket, before there is a runtime.
///
/// # Errors
/// When another process uses it, or another user could replace the socket.
pub fn claim(location: &Location) -> Result<Claimed, Failure> {
    AdminSocket::bind(location).map_err(unclaimed)
}

/// Turns a claimed socket into one that is served; must run within a runtime.
pub fn admin_socket((socket, listener): Claimed) -> Result<(AdminSocket, UnixListener), Failure> {
    let listener = UnixListener::from_std(listener).context("cannot use the admin socket")?;
    tracing::info!("admin socket {}", socket.path().display());
    Ok((socket, listener))
}

/// Exit code for each reason why the socket cannot be bound.
pub(crate) fn unclaimed(error: SocketError) -> Failure {
    let exit = match error {
        SocketError::Busy(_) => Exit::Busy,
        _ => Exit::Failed,
    };
    Failure::new(exit, error)
}

/// Opens the TCP listener for metrics, unless the setting is `none`.
pub fn metrics_listener(metrics: Metrics) -> Result<Option<(TcpListener, SocketAddr)>, Failure> {
    let Metrics::At(at) = metrics else {
        return Ok(None);
    };
    let (listener, address) = bind(at, Instead::Never)
        .context("no metrics: choose another address with --metrics, or `--metrics none`")?;
    let listener = TcpListener::from_std(listener).context("cannot use the metrics listener")?;
    tracing::info!("metrics at http://{address}/metrics");
    Ok(Some((listener, address)))
}

/// The access log, written to the target of the settings if they have one.
pub(super) fn access_log(
    settings: &Settings,
    node: Option<&NodeName>,
) -> Result<AccessLog, Failure> {
    let log = AccessLog::off(node.map_or("", NodeName::as_str));
    write_log(&log, settings)?;
    Ok(log)
}

/// Writes the access log to the target of the settings from now on, or turns it off if they have none.
pub(super) fn write_log(log: &AccessLog, settings: &Settings) -> anyhow::Result<()> {
    let Some(path) = &settings.access_log.path else {
        return Ok(log.write_to(None)?);
    };
    let target = if path == Path::new("-") {
        Target::Stdout
    } else {
        Target::File(path.clone())
    };
    log.write_to(Some(target)).map_err(|error| {
        let remedy = match error.kind() {
            io::ErrorKind::PermissionDenied => format!(
                " (as user {}: give it the file, or the folder to make it in, with chown, and let it through the \
                 folders above)",
                geteuid().as_raw()
            ),
            _ => String::new(),
        };
        anyhow!("cannot write the access log {}: {error}{remedy}", path.display())
    })
}

/// Demand for descriptors by the mesh and the settings.
pub(super) fn wanted(
    mesh: Option<(&Mesh, &BTreeSet<WorkloadName>)>,
    settings: &Settings,
) -> DescriptorDemand {
    let workloads = mesh.iter().flat_map(|(mesh, _)| &mesh.workloads);
    let commands = workloads.filter(|w| w.command.is_some());
    let workers = settings.proxy.settings().workers;
    DescriptorDemand {
        workers: (workers.min, workers.max),
        listeners: mesh
            .map_or(0, |(mesh, registered)| listeners::count(mesh, registered))
            .min(settings.listeners.max.size()),
        clients: settings.proxy.settings().bounds.connections,
        commands: match settings.workloads.run {
            true => commands.count(),
            false => 0,
        },
    }
}

pub(super) fn supervisor(settings: &Settings, output: &Output) -> Option<Supervisor> {
    let workloads = &settings.workloads;
    if !workloads.run {
        return None;
    }
    if geteuid().is_root() {
        tracing::warn!("running as root, and so will the commands of LocalWorkloads");
    }
    let policy = Policy {
        stop_grace: workloads.stop_grace_ms.duration(),
        restart_min: workloads.restart_min_ms.duration(),
        restart_max: workloads.restart_max_ms.duration(),
        cpus: cores::for_commands(&settings.proxy.settings().cpus),
    };
    Some(Supervisor::new(policy, output.clone()))
}
