//! A control plane with a thousand lazy Envoys, each of which learns three Services. The Envoys are simulated, as far as their
//! subscriptions go, and so is the gateway that reports what they use.

use std::cell::{Cell, RefCell};
use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;
use std::fs;
use std::net::{SocketAddr, TcpStream};
use std::path::Path;
use std::rc::Rc;
use std::sync::Arc;
use std::time::{Duration, Instant};

use heddle_transport::Clock;
use heddle_transport::control::Connector;
use serde_json::json;
use tokio::task::{JoinHandle, LocalSet, spawn_local};
use tokio::time::sleep;

use super::Sizes;
use crate::account;
use crate::authority::Authority;
use crate::child::{Child, Confinement};
use crate::control_scale::link;
use crate::findings::{Findings, shown};
use crate::nodes::{MeshProcesses, Site};
use crate::statistics::median;

mod ads;
mod als;

/// The namespace of the workloads.
const NAMESPACE: &str = "shop";
/// The workload of the gateway.
const GATEWAY: &str = "mesh/gate";
/// Services that each workload uses.
const USES: usize = 3;
/// Reports of the gateway in a second.
const RATE: u32 = 50;
/// Envoys that connect at one time.
const AT_ONCE: usize = 32;
/// The timeout of every wait.
const PATIENCE: Duration = Duration::from_secs(180);
/// How long the control plane is watched while nothing happens.
const REST: Duration = Duration::from_secs(10);

/// What all simulated Envoys share.
struct Fleet {
    authority: Authority,
    control: SocketAddr,
    /// The time of the report of each use, by the cluster that the Envoy then gets.
    reported: RefCell<BTreeMap<(usize, String), Instant>>,
    /// How long each of them took, in milliseconds.
    took_ms: RefCell<Vec<f64>>,
    /// Envoys that have everything they are sent at first.
    ready: Cell<usize>,
    /// Why a call has ended.
    ended: RefCell<Option<String>>,
}

pub(super) fn run(heddle: &Path, sizes: &Sizes, findings: &mut Findings) -> anyhow::Result<()> {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()?;
    LocalSet::new().block_on(&runtime, measure(heddle, sizes, findings))
}

async fn measure(heddle: &Path, sizes: &Sizes, findings: &mut Findings) -> anyhow::Result<()> {
    let count = sizes.workloads;
    let dir = tempfile::Builder::new().prefix("heddle-lab-").tempdir()?;
    fs::create_dir(dir.path().join("mesh"))?;
    fs::write(dir.path().join("mesh/all.yaml"), manifests(count)?)?;
    let settings = dir.path().join("control.yaml");
    fs::write(&settings, "mesh: {address_ranges: [10.0.0.0/8]}\n")?;
    let authority = Authority::new()?;
    let site = Site {
        heddle,
        dir: dir.path(),
        place: &Confinement::default(),
        settings: None,
        control_settings: Some(&settings),
        apart: None,
        etcd: None,
        root: &authority,
    };
    let MeshProcesses {
        mut control,
        control_at,
        ..
    } = MeshProcesses::start(&site, &[])?;
    control.wait_until(PATIENCE, || TcpStream::connect(control_at).ok())?;
    let fleet = Rc::new(Fleet {
        authority,
        control: control_at,
        reported: RefCell::default(),
        took_ms: RefCell::default(),
        ready: Cell::new(0),
        ended: RefCell::default(),
    });
    let tasks = connect(&fleet, count).await?;
    let connected = Watched::of(&control)?;
    let report = als::Reports::open(&fleet).await?;
    let began = (Instant::now(), Watched::of(&control)?);
    for number in 0..count * USES {
        let (workload, service) = (number / USES, (number / USES + number % USES + 1) % count);
        let due = began.0 + Duration::from_secs(1) * u32::try_from(number)? / RATE;
        sleep(due.saturating_duration_since(Instant::now())).await;
        let cluster = format!("{NAMESPACE}/w{service}/80");
        let now = Instant::now();
        fleet.reported.borrow_mut().insert((workload, cluster), now);
        report.used(workload, service).await?;
    }
    fleet
        .until("all is learned", |fleet| {
            fleet.took_ms.borrow().len() == count * USES
        })
        .await?;
    let learning = Watched::of(&control)?.since(&began.1, began.0.elapsed());
    let rest = (Instant::now(), Watched::of(&control)?);
    sleep(REST).await;
    let resting = Watched::of(&control)?.since(&rest.1, rest.0.elapsed());
    let mut took = fleet.took_ms.borrow().clone();
    took.sort_by(f64::total_cmp);
    let p99 = took.get(took.len() * 99 / 100).copied();
    findings.say(format!(
        "\nWorkloads: {count} lazy Envoys, each learns {USES} Services, {RATE} in a second in all\n  control plane: {} MiB with all \
         connected, {} MiB afterwards; {} cores while they learn, {} at rest; an Envoy has what it uses {} ms after the report (p99 {})",
        shown(Some(connected.mib), 1),
        shown(Some(learning.mib), 1),
        shown(Some(learning.cpu_s), 3),
        shown(Some(resting.cpu_s), 3),
        shown(median(&took), 1),
        shown(p99, 1),
    ));
    findings.value("workloads_control_mib", Some(learning.mib));
    findings.value("workloads_control_cores", Some(learning.cpu_s));
    findings.value("workloads_control_cores_resting", Some(resting.cpu_s));
    findings.value("workloads_learned_ms", median(&took));
    findings.value("workloads_learned_p99_ms", p99);
    findings.rows.push(json!({
        "scenario": "workloads", "count": count, "connected_mib": connected.mib, "learned_mib": learning.mib,
        "cores_learning": learning.cpu_s, "cores_resting": resting.cpu_s,
    }));
    tasks.iter().for_each(JoinHandle::abort);
    Ok(())
}

/// Connects all Envoys, and waits until each has what it is sent at first.
async fn connect(fleet: &Rc<Fleet>, count: usize) -> anyhow::Result<Vec<JoinHandle<()>>> {
    let mut tasks = Vec::new();
    for number in 0..count {
        let waits = |fleet: &Fleet| number < fleet.ready.get() + AT_ONCE;
        fleet
            .until("the Envoys before have everything", waits)
            .await?;
        let fleet = Rc::clone(fleet);
        tasks.push(spawn_local(async move {
            if let Err(why) = ads::follow(&fleet, number).await {
                fleet.ended.replace(Some(format!("w{number}: {why:#}")));
            }
        }));
    }
    let all = |fleet: &Fleet| fleet.ready.get() == count;
    fleet.until("all Envoys have everything", all).await?;
    Ok(tasks)
}

impl Fleet {
    /// Waits until something is so.
    async fn until(&self, what: &str, is_so: impl Fn(&Fleet) -> bool) -> anyhow::Result<()> {
        let began = Instant::now();
        while !is_so(self) {
            if let Some(why) = &*self.ended.borrow() {
                anyhow::bail!("a call has ended: {why}");
            }
            anyhow::ensure!(began.elapsed() < PATIENCE, "it does not come true: {what}");
            sleep(Duration::from_millis(20)).await;
        }
        Ok(())
    }

    /// A connection in the name of a workload's Envoy.
    async fn open(&self, workload: &str) -> anyhow::Result<tonic::transport::Channel> {
        let leaf = self.authority.envoy(workload)?;
        let trust = Arc::new(self.authority.trust()?);
        let connector = Connector::joined(&leaf, &trust, &Arc::new(Clock::new(0)))?;
        link::open(self.control, &connector, Arc::default(), true).await
    }

    /// Notes that an Envoy has these clusters, and routes to them.
    fn has(&self, workload: usize, clusters: &BTreeSet<String>) {
        let mut reported = self.reported.borrow_mut();
        for cluster in clusters {
            if let Some(since) = reported.remove(&(workload, cluster.clone())) {
                let took = since.elapsed().as_secs_f64() * 1e3;
                self.took_ms.borrow_mut().push(took);
            }
        }
    }
}

/// The memory and the processor time of the control plane.
struct Watched {
    mib: f64,
    /// Seconds so far, or processors over a time.
    cpu_s: f64,
}

impl Watched {
    fn of(control: &Child) -> anyhow::Result<Watched> {
        Ok(Watched {
            mib: account::memory(control.pid())?.private_kib as f64 / 1024.0,
            cpu_s: account::cpu_ns_alone(control.pid())? as f64 / 1e9,
        })
    }

    fn since(&self, before: &Watched, time: Duration) -> Watched {
        Watched {
            mib: self.mib,
            cpu_s: (self.cpu_s - before.cpu_s) / time.as_secs_f64(),
        }
    }
}

fn workload(number: usize) -> String {
    format!("{NAMESPACE}/w{number}")
}

/// The cluster address of a workload's Service.
fn address(number: usize) -> String {
    format!("10.96.{}.{}", number / 250, 1 + number % 250)
}

/// Lazy workloads with a Service each, and a gateway.
fn manifests(count: usize) -> anyhow::Result<String> {
    let mut text = "apiVersion: v1\nkind: ServiceAccount\nmetadata: {name: gateway, namespace: mesh, annotations: \
                    {heddle.dev/gateway: default}}\n---\napiVersion: heddle.dev/v1alpha1\nkind: LocalWorkload\nmetadata: {name: gate, \
                    namespace: mesh, annotations: {heddle.dev/proxy: envoy}}\nspec: {nodeName: one, address: 10.130.255.1, \
                    serviceAccountName: gateway}\n"
        .to_owned();
    for number in 0..count {
        let (third, fourth) = (number / 250, 1 + number % 250);
        writeln!(
            text,
            "---\n{{apiVersion: v1, kind: ServiceAccount, metadata: {{name: w{number}, namespace: {NAMESPACE}}}}}\n\
             ---\n{{apiVersion: heddle.dev/v1alpha1, kind: LocalWorkload, metadata: {{name: w{number}, namespace: {NAMESPACE}, labels: \
             {{app: w{number}}}, annotations: {{heddle.dev/proxy: envoy, lazy-xds: \"true\"}}}}, spec: {{nodeName: one, address: \
             10.130.{third}.{fourth}, serviceAccountName: w{number}}}}}\n\
             ---\n{{apiVersion: v1, kind: Service, metadata: {{name: w{number}, namespace: {NAMESPACE}}}, spec: {{clusterIP: {}, \
             ipFamilies: [IPv4], selector: {{app: w{number}}}, ports: [{{port: 80, appProtocol: http}}]}}}}",
            address(number)
        )?;
    }
    Ok(text)
}
