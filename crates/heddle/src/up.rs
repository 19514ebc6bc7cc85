//! `heddle up`: control plane and node proxy in one process.
//!
//! The mesh comes from the folder of manifests, and from the registry beside it if there is one: nothing is
//! served before the folder could be read once, and a state of it that is wrong never replaces one that was right. The rest is
//! [`crate::serving`].

use std::path::{Path, PathBuf};

use anyhow::anyhow;
use heddle_compile::Watcher;
use heddle_model::Mesh;
use heddle_model::report::Report;
use tokio::sync::mpsc;

use crate::exit::{Exit, Failure};
use crate::registry::Followed;
use crate::serving::{self, Change, Doors, Output, Served};
use crate::settings::Settings;
use crate::table::count;

/// Serves the folder until a signal ends it.
///
/// # Errors
/// When something is missing that is needed from the start: the admin socket, the metrics
/// address, the access log, a valid configuration.
pub(crate) fn run(dir: PathBuf, settings: Settings) -> Result<Exit, Failure> {
    serving::in_runtime(&settings.clone(), async |output| {
        serve(dir, settings, output).await
    })
}

async fn serve(dir: PathBuf, settings: Settings, output: Output) -> Result<Exit, Failure> {
    let doors = Doors::open(&settings, None)?;
    let mut watcher = Watcher::with(&dir, settings.mesh.options());
    let registry = Followed::start(&settings).await?;
    if let Some(registry) = &registry {
        watcher = watcher.beside(registry.providers());
    }
    let (mesh, report) = first_mesh(&mut watcher, &dir).await?;
    let served = Served {
        source: dir,
        first: Some((mesh, report)),
        changes: follow(watcher),
        mesh_socket: None,
        identity: None,
        registry,
        pods: None,
    };
    serving::serve(doors, settings, output, served).await
}

/// The folder as it is now, with its warnings. At the start a mistake is refused: there is no
/// last good state yet.
async fn first_mesh(watcher: &mut Watcher, dir: &Path) -> Result<(Mesh, Report), Failure> {
    let (mesh, report) = watcher.next().await;
    match mesh {
        Some(mesh) => Ok((mesh, report)),
        None => {
            serving::say(&report);
            let (errors, dir) = (count(report.errors(), "error"), dir.display());
            Err(Failure::new(
                Exit::Refused,
                anyhow!("{errors} in {dir}, nothing is served"),
            ))
        }
    }
}

/// Watches the folder in a task of its own, so that a busy main loop never restarts a look.
fn follow(mut watcher: Watcher) -> mpsc::Receiver<Change> {
    let (sender, changes) = mpsc::channel(1);
    tokio::spawn(async move {
        loop {
            let (mesh, report) = watcher.next().await;
            let change = Change::Folder(mesh, Box::new(report));
            if sender.send(change).await.is_err() {
                return;
            }
        }
    });
    changes
}
