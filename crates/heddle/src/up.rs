//! `heddle up`: control plane and node proxy in one process.
//!
//! The mesh comes from the folder of manifests, and from the registry if there is one. An object with an error never
//! replaces a valid one. The rest is
//! [`heddle_node::serving`].

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use anyhow::anyhow;
use heddle_compile::Watcher;
use heddle_model::Mesh;
use heddle_model::report::Report;
use heddle_node::exit::{Exit, Failure};
use heddle_node::serving::{self, Change, Doors, Findings, Output, RegistryView, Reload, Served};
use heddle_node::settings::Settings;
use heddle_node::table::count;
use tokio::sync::mpsc;

use crate::registry::Followed;
use crate::{report, settings};

/// Serves the folder until a signal ends it.
///
/// # Errors
/// When something is missing at the start: the admin socket, the metrics address, the access log, a valid
/// configuration.
pub(crate) fn run(dir: PathBuf, settings: Settings, reload: Reload) -> Result<Exit, Failure> {
    serving::in_runtime(&settings.clone(), async |output| {
        serve(dir, settings, reload, output).await
    })
}

async fn serve(
    dir: PathBuf,
    settings: Settings,
    reload: Reload,
    output: Output,
) -> Result<Exit, Failure> {
    let doors = Doors::open(&settings, None, None)?;
    let mut source = Source::open(&dir, &settings).await?;
    let first = source.first_mesh(&dir).await?;
    let served = Served {
        source: dir,
        first: Some(first),
        changes: source.follow(),
        mesh_socket: None,
        identity: None,
        pods: None,
        learning: None,
        accesses: None,
        reload,
    };
    serving::serve(doors, settings, output, served).await
}

/// The folder, and the registry if there is one.
struct Source {
    watcher: Watcher,
    registry: Option<Arc<Followed>>,
    /// Problems of the last read.
    problems: Vec<String>,
}

impl Source {
    async fn open(dir: &Path, settings: &Settings) -> Result<Source, Failure> {
        let mut watcher = Watcher::with(dir, settings::options(&settings.mesh));
        let registry = Followed::start(settings).await?;
        if let Some(registry) = &registry {
            watcher = watcher.beside(registry.providers());
        }
        Ok(Source {
            watcher,
            registry: registry.map(Arc::new),
            problems: Vec::new(),
        })
    }

    /// Reads the folder for the first time. If nothing of it can be served, that is fatal: there is no last good state yet.
    async fn first_mesh(&mut self, dir: &Path) -> Result<(Mesh, Findings), Failure> {
        let (mesh, report) = self.watcher.next().await;
        let errors = count(report.errors(), "error");
        let findings = self.findings(report);
        match mesh {
            Some(mesh) => Ok((mesh, findings)),
            None => Err(Failure::new(
                Exit::Refused,
                anyhow!("{errors} in {}, nothing is served", dir.display()),
            )),
        }
    }

    /// Watches the folder in a task of its own, so that a busy main loop never restarts a read of the folder.
    fn follow(mut self) -> mpsc::Receiver<Change> {
        let (sender, changes) = mpsc::channel(1);
        tokio::spawn(async move {
            loop {
                let (mesh, report) = self.watcher.next().await;
                let findings = Box::new(self.findings(report));
                if sender
                    .send(Change::Folder(mesh.map(Box::new), findings))
                    .await
                    .is_err()
                {
                    return;
                }
            }
        });
        changes
    }

    /// Logs the problems of a report, and converts it for the node.
    fn findings(&mut self, report: Report) -> Findings {
        report::say_new(&report, &self.problems);
        self.problems = report.problems.iter().map(ToString::to_string).collect();
        let tally = report.registry.clone();
        Findings {
            problems: self.problems.clone(),
            registered: BTreeSet::clone(&report.registered),
            uncalled: tally.uncalled.clone(),
            report: Some(report),
            registry: self
                .registry
                .clone()
                .map(|registry| -> RegistryView { Box::new(move || registry.status(&tally)) }),
        }
    }
}
