//! A near node with callers and a far node with the Services, started anew for each run: between runs, a node would go
//! back to one Worker only after some time without load.

use std::fs;
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::Context;

use super::sharing::{Sharing, Times, watched};
use super::{BetweenPlan, Transport};
use crate::ask;
use crate::authority::Authority;
use crate::child::{Child, Confinement, words};
use crate::load::Outcome;
use crate::nodes::{self, Apart, FAR, Nodes, Site};
use crate::stage::parse;
use crate::systems::{READY_WITHIN, System, Work, render};
use crate::upstream::Serving;

/// Connections of the load generator, those of all callers together.
const CONNECTIONS: u32 = 64;
/// The nice value of the far node: all other processes get CPU time first, so that this node is the overloaded one.
const FAR_IS_NICE: u32 = 12;
/// How much longer than planned a load generator may take.
const LATE: Duration = Duration::from_secs(20);

/// Processes and files that all runs share.
pub(super) struct BetweenStage {
    pub(super) heddle: System,
    pub(super) upstream: Serving,
    pub(super) dir: tempfile::TempDir,
}

impl BetweenStage {
    /// Starts both nodes and loads them. Returns the load generator's outcome, with the CPU time of the far node, and
    /// after how many seconds the far node had two Workers and both shared the work.
    pub(super) fn run(
        &self,
        way: Transport,
        callers: u32,
        plan: &BetweenPlan,
    ) -> anyhow::Result<(Outcome, Times)> {
        let dir = tempfile::Builder::new().prefix("heddle-lab-").tempdir()?;
        let (nodes, targets) = self.nodes(dir.path(), way, callers)?;
        let far = nodes.far.child.pid();
        let mut command = vec![std::env::current_exe()?.into_os_string()];
        command.extend(words(["load", "--body-bytes", "128"]));
        command.extend(words(["--connections", &CONNECTIONS.to_string()]));
        command.extend(words(["--warm-up", &plan.warm_up_s.to_string()]));
        command.extend(words(["--seconds", &plan.window_s.to_string()]));
        command.extend(words(["--watch", &format!("far={far}")]));
        command.extend(words(targets.iter().flat_map(|to| ["--target", to])));
        let log = self.dir.path().join("load.log");
        let sharing = Sharing::default();
        let (printed, times) = watched(far, sharing, || {
            let place = Confinement::default();
            let child = Child::start("the load generator", &place, &command, &log, true)?;
            child.finish(Duration::from_secs_f64(plan.warm_up_s + plan.window_s) + LATE)
        })?;
        Ok((parse(&printed)?, times))
    }

    /// Starts two nodes; returns them once they serve, with one load target for each caller.
    fn nodes(
        &self,
        dir: &Path,
        way: Transport,
        callers: u32,
    ) -> anyhow::Result<(Nodes, Vec<String>)> {
        let work = Work::new(1, 1, self.upstream.port);
        let service = &work.services[0];
        let manifest = render(
            include_str!("../../peers/heddle-callers.yaml.j2"),
            minijinja::context! { callers, service },
        )?;
        nodes::write_manifest(dir, &manifest)?;
        // One Worker at the near node: the load has to fill the far node's Workers, and the near node must not spread
        // it.
        let near = settings(dir, "near.yaml", way, 1)?;
        let far = settings(dir, "far.yaml", way, 2)?;
        let mut nodes = Nodes::start(&Site {
            heddle: &self.heddle.program,
            dir,
            place: &Confinement::default(),
            control_settings: None,
            settings: Some(&near),
            apart: Some(Apart {
                node: FAR,
                settings: &far,
                nice: FAR_IS_NICE,
            }),
            etcd: None,
            root: &Authority::new()?,
        })?;
        let (program, socket) = (nodes.near.heddle.clone(), nodes.near.socket.clone());
        let targets = nodes.near.child.wait_until(READY_WITHIN, || {
            let targets = targets(&nodes::status(&program, &socket)?, &service.host)?;
            let is_served = |to: &String| {
                let answered = ask::status(to, "GET", "/api/v1/items/128", "ready");
                answered.is_ok_and(|status| status == 200)
            };
            (targets.len() == callers as usize && targets.iter().all(is_served)).then_some(targets)
        })?;
        Ok((nodes, targets))
    }
}

fn settings(dir: &Path, name: &str, way: Transport, most: u32) -> anyhow::Result<PathBuf> {
    let file = dir.join(name);
    let between = way.name();
    let text = format!("proxy: {{between_nodes: {between}, workers: {{min: 1, max: {most}}}}}\n");
    fs::write(&file, text).context("the settings")?;
    Ok(file)
}

/// The listeners of the callers in a node's status, as load targets.
fn targets(status: &[u8], host: &str) -> Option<Vec<String>> {
    let status: serde_json::Value = serde_json::from_slice(status).ok()?;
    let listeners = status.get("listeners")?.as_array()?;
    let ours = listeners.iter().filter(|listener| {
        let caller = listener["caller"].as_str();
        listener["kind"] == "service" && caller.is_some_and(|caller| caller.starts_with("lab/near"))
    });
    let target =
        |listener: &serde_json::Value| Some(format!("{host}@{}", listener["address"].as_str()?));
    ours.map(target).collect()
}
