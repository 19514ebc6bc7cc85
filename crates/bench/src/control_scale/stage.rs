//! The real processes: an etcd with all providers registered, and a control plane that follows it. Istio's are in
//! [`super::istio`].

use std::fmt::Write as _;
use std::fs;
use std::net::{SocketAddr, TcpStream};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::Context;
use rustix::process::{Resource, getrlimit, setrlimit};
use tempfile::TempDir;

use super::Mode;
use super::common::{ControlPlane, Processes};
use super::fleet::Fleet;
use super::istio;
use super::registry::{self, Registry, Write};
use super::shape::{Shape, service_address, service_name};
use crate::authority::Authority;
use crate::child::{Child, Confinement};
use crate::etcd;
use crate::install::IstioPrograms;
use crate::nodes::{MeshProcesses, Site};

/// Objects in one file.
const IN_A_FILE: usize = 500;
/// How long the control plane may take until it accepts connections: it reads its manifests and the registry first.
const LISTENS_WITHIN: Duration = Duration::from_secs(60);
/// How long it may take until every node has everything: so long for each pod, and at least a minute. Nodes arrive one
/// after the other, and the control plane tells all of them of each.
const COMPLETE_AT_LEAST: Duration = Duration::from_secs(60);
const COMPLETE_PER_POD: Duration = Duration::from_millis(10);
/// Descriptors beside those of connections.
const OTHER_DESCRIPTORS: u64 = 256;

/// A running mesh, in which nothing changes by itself. Fields are dropped in this order.
pub(super) struct Stage {
    pub(super) fleet: Fleet,
    pub(super) control: Child,
    /// What is between it and the store, if anything is, and etcd.
    pub(super) store: Vec<Child>,
    pub(super) etcd_at: SocketAddr,
    /// What gives a pod another address.
    pub(super) write: Write,
    pub(super) shape: Arc<Shape>,
    /// Changes a second.
    pub(super) rate: u32,
    /// The number of the next change.
    pub(super) next_change: usize,
    complete_within: Duration,
    _dir: TempDir,
}

/// The programs.
pub(super) struct Programs {
    pub(super) heddle: PathBuf,
    pub(super) etcd: PathBuf,
    /// None where istiod is not measured.
    pub(super) istio: Option<IstioPrograms>,
}

impl Stage {
    /// Starts the processes, and connects all nodes. `victims` are nodes that may become dead.
    ///
    /// # Errors
    /// When something does not start, or a node does not get everything in time.
    pub(super) async fn new(
        programs: &Programs,
        pods: usize,
        mode: Mode,
        victims: &[usize],
    ) -> anyhow::Result<Stage> {
        let shape = Arc::new(Shape::new(pods));
        raise_descriptors(shape.nodes)?;
        let dir = tempfile::Builder::new().prefix("heddle-lab-").tempdir()?;
        let processes = match mode.is_istio() {
            true => {
                let programs = programs.istio.as_ref().context("istiod is not there")?;
                istio::start(programs, (&shape, mode.told()), dir).await?
            }
            false => start_heddle(programs, &shape, dir).await?,
        };
        let Processes {
            control,
            control_at,
            system,
            store,
            etcd_at,
            write,
            dir,
        } = processes;
        let fleet = Fleet::new(&shape, (control_at, system), mode.told(), victims);
        let per_pod = COMPLETE_PER_POD * u32::try_from(shape.pods)?;
        let mut stage = Stage {
            fleet,
            control,
            store,
            etcd_at,
            write,
            rate: mode.rate(shape.nodes),
            shape,
            next_change: 0,
            complete_within: COMPLETE_AT_LEAST.max(per_pod),
            _dir: dir,
        };
        let began = Instant::now();
        let connected = stage.fleet.connect(stage.complete_within).await;
        if connected.is_err() {
            stage.ensure_running()?;
        }
        connected?;
        eprintln!(
            "{} nodes: have everything after {:.1} s",
            stage.shape.nodes,
            began.elapsed().as_secs_f64()
        );
        Ok(stage)
    }

    /// Checks that the calls of all healthy nodes go on.
    ///
    /// # Errors
    /// When one has ended, or a process has, which is the more likely reason.
    pub(super) fn check(&mut self) -> anyhow::Result<()> {
        let checked = self.fleet.check();
        if checked.is_err() {
            self.ensure_running()?;
        }
        checked
    }

    /// Fails with the last words of a process that has ended.
    fn ensure_running(&mut self) -> anyhow::Result<()> {
        ensure_running(&mut self.control)?;
        self.store.iter_mut().try_for_each(ensure_running)
    }

    /// Connects these nodes anew.
    ///
    /// # Errors
    /// When one does not get everything in time.
    pub(super) async fn replace(&self, nodes: &[usize]) -> anyhow::Result<()> {
        self.fleet.replace(nodes, self.complete_within).await
    }
}

/// Starts etcd with all providers, and a control plane of Heddle.
async fn start_heddle(
    programs: &Programs,
    shape: &Shape,
    dir: TempDir,
) -> anyhow::Result<Processes> {
    let place = Confinement::default();
    let (etcd, etcd_at) = etcd::start(&programs.etcd, &place, dir.path())?;
    let began = Instant::now();
    Registry::connect(etcd_at).await?.fill(shape).await?;
    eprintln!(
        "{} pods: registered in {:.1} s",
        shape.pods,
        began.elapsed().as_secs_f64()
    );
    write_manifests(dir.path(), shape)?;
    let authority = Authority::new()?;
    let site = Site {
        heddle: &programs.heddle,
        dir: dir.path(),
        place: &place,
        control_settings: None,
        settings: None,
        apart: None,
        etcd: Some(&format!("http://{etcd_at}")),
        root: &authority,
    };
    let MeshProcesses {
        mut control,
        control_at,
        ..
    } = MeshProcesses::start(&site, &[])?;
    control.wait_until(LISTENS_WITHIN, || TcpStream::connect(control_at).ok())?;
    Ok(Processes {
        control,
        control_at,
        system: ControlPlane::Heddle(Box::new(authority)),
        store: vec![etcd],
        etcd_at,
        write: registry::provider,
        dir,
    })
}

/// Fails with the last words of a process that has ended.
fn ensure_running(child: &mut Child) -> anyhow::Result<()> {
    let mut has_looked = false;
    // Between the two answers it is looked whether the process has ended.
    child.wait_until(Duration::from_secs(1), || {
        std::mem::replace(&mut has_looked, true).then_some(())
    })
}

/// Writes the namespaces and the Services into `mesh/`.
fn write_manifests(dir: &Path, shape: &Shape) -> anyhow::Result<()> {
    let mesh = dir.join("mesh");
    fs::create_dir(&mesh)?;
    let mut text = String::new();
    for name in shape.namespaces() {
        writeln!(
            text,
            "{{apiVersion: v1, kind: Namespace, metadata: {{name: {name}}}}}\n---"
        )?;
    }
    fs::write(mesh.join("namespaces.yaml"), text)?;
    for first in (0..shape.services).step_by(IN_A_FILE) {
        let mut text = String::new();
        for service in first..shape.services.min(first + IN_A_FILE) {
            let (namespace, name) = service_name(service);
            let address = service_address(service);
            writeln!(
                text,
                "{{apiVersion: v1, kind: Service, metadata: {{name: {name}, namespace: {namespace}}}, spec: {{clusterIP: \
                 {address}, selector: {{app: {name}}}, ports: [{{name: http, port: 80, targetPort: http}}]}}}}\n---"
            )?;
        }
        fs::write(mesh.join(format!("services-{first:06}.yaml")), text)?;
    }
    Ok(())
}

/// Raises the limit of open files, which the control plane inherits: each end has a connection to each node.
fn raise_descriptors(nodes: usize) -> anyhow::Result<()> {
    let needed = nodes as u64 + OTHER_DESCRIPTORS;
    let mut limit = getrlimit(Resource::Nofile);
    let is_enough = |limit: Option<u64>| limit.is_none_or(|limit| limit >= needed);
    if !is_enough(limit.current) {
        limit.current = limit.maximum;
        setrlimit(Resource::Nofile, limit).context("the limit of open files")?;
    }
    anyhow::ensure!(
        is_enough(limit.current),
        "{needed} open files are needed, the limit is {:?} (raise it: ulimit -Hn)",
        limit.current
    );
    Ok(())
}
