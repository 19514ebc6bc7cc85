//! The processes of the experiment: a Heddle with settings of its own, an upstream, a load generator.

use std::ffi::OsString;
use std::io::{Read, Write};
use std::net::SocketAddr;
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::Context;
use serde::Deserialize;

use crate::cgroup::QuotaGroup;
use crate::child::{Child, Confinement, words};
use crate::load::Outcome;
use crate::systems::{ProxyKind, Running, System, Work};
use crate::upstream::{self, Serving};

/// How much longer than planned a load generator may take.
const LATE: Duration = Duration::from_secs(20);

/// Processes and files that all scenarios share.
pub(super) struct ElasticStage {
    system: System,
    upstream: Serving,
    dir: tempfile::TempDir,
    /// The control group that limits Heddle, or why there is none.
    pub(super) group: Result<QuotaGroup, String>,
}

/// A Worker as Heddle's admin socket shows it.
#[derive(Debug, Deserialize)]
pub(super) struct WorkerView {
    pub(super) retiring: bool,
}

#[derive(Deserialize)]
struct Workers {
    workers: Vec<WorkerView>,
}

impl ElasticStage {
    pub(super) fn set(heddle: &Path) -> anyhow::Result<ElasticStage> {
        let dir = tempfile::Builder::new().prefix("heddle-lab-").tempdir()?;
        Ok(ElasticStage {
            system: System::new("heddle", ProxyKind::Heddle, heddle)?,
            upstream: Serving::start(1, &Confinement::default(), dir.path())?,
            group: QuotaGroup::create("heddle").map_err(|error| format!("{error:#}")),
            dir,
        })
    }

    /// A Heddle with these settings of its workers, in YAML.
    pub(super) fn heddle(&self, workers: &str) -> anyhow::Result<Running> {
        let settings = self.dir.path().join("settings.yaml");
        let text = format!("proxy: {{workers: {{{workers}}}}}\n");
        std::fs::write(&settings, text)?;
        let place = Confinement {
            core: None,
            groups: self
                .group
                .iter()
                .map(|group| group.dir().to_owned())
                .collect(),
        };
        let work = Work::new(1, 1, self.upstream.port);
        let system = self.system.clone().with_settings(&settings);
        system.start(&work, &place, &[])
    }

    pub(super) fn upstream_address(&self) -> SocketAddr {
        (upstream::address(0), self.upstream.port).into()
    }

    /// Starts a load generator for a proxy.
    pub(super) fn load(&self, proxy: &Running, arguments: &[&str]) -> anyhow::Result<Child> {
        let targets = proxy.targets.iter();
        let mut all = words(targets.flat_map(|target| ["--target", target]));
        all.extend(proxy.watched());
        all.extend(words(arguments));
        self.start_load(all)
    }

    /// Loads a proxy. The load generator may take `within_s` seconds, and [`LATE`] more.
    pub(super) fn measure(
        &self,
        proxy: &Running,
        arguments: &[&str],
        within_s: f64,
    ) -> anyhow::Result<Outcome> {
        let within = Duration::from_secs_f64(within_s) + LATE;
        outcome(&self.load(proxy, arguments)?.finish(within)?)
    }

    /// Loads the server that listens at `target`, `AUTHORITY@ADDRESS:PORT`.
    pub(super) fn measure_at(&self, target: &str, arguments: &[&str]) -> anyhow::Result<Outcome> {
        let mut all = words(["--target", target]);
        all.extend(words(arguments));
        outcome(&self.start_load(all)?.finish(LATE)?)
    }

    fn start_load(&self, arguments: Vec<OsString>) -> anyhow::Result<Child> {
        let mut command: Vec<OsString> = vec![std::env::current_exe()?.into()];
        command.extend(words(["load", "--body-bytes", "128"]));
        command.extend(arguments);
        let log = self.dir.path().join("load.log");
        Child::start(
            "the load generator",
            &Confinement::default(),
            &command,
            &log,
            true,
        )
    }
}

/// The outcome in the last line of what a load generator printed.
pub(super) fn outcome(printed: &str) -> anyhow::Result<Outcome> {
    let line = printed.lines().last().unwrap_or_default();
    serde_json::from_str(line).context("the load generator printed no valid outcome")
}

/// Asks a Heddle for its Workers over its admin socket.
///
/// # Errors
/// When it does not answer as expected.
pub(super) fn workers(socket: &PathBuf) -> anyhow::Result<Vec<WorkerView>> {
    let mut stream = UnixStream::connect(socket)?;
    stream.set_read_timeout(Some(Duration::from_secs(5)))?;
    stream.write_all(b"GET /workers HTTP/1.1\r\nHost: heddle\r\nConnection: close\r\n\r\n")?;
    let mut answer = String::new();
    stream.read_to_string(&mut answer)?;
    let (_, body) = answer.split_once("\r\n\r\n").context("no answer")?;
    let workers: Workers = serde_json::from_str(body.trim())?;
    Ok(workers.workers)
}
