//! The programs that a lab starts.

use std::env;
use std::path::{Path, PathBuf};

use anyhow::Context;
use serde::{Deserialize, Serialize};

/// Paths of the programs, and what to do with a lab that fails.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Programs {
    /// `heddle-lab`, which also serves DNS and restarts services.
    pub lab: PathBuf,
    /// `heddle`. `None`: not found, which is an error only for a lab with a mesh.
    pub heddle: Option<PathBuf>,
    /// A stock Envoy. `None`: not found, which is an error only for a lab in which a pod has one of its own.
    pub envoy: Option<PathBuf>,
    /// Whether a lab that could not be completed is kept for inspection.
    pub keep: bool,
}

impl Programs {
    /// Looks beside the running program, one folder up (where cargo puts programs beside tests), and in
    /// `PATH`.
    ///
    /// # Errors
    /// `heddle-lab` is not found.
    pub fn find() -> anyhow::Result<Self> {
        let own = env::current_exe().context("cannot find the running program")?;
        let lab = match own.file_name().is_some_and(|name| name == "heddle-lab") {
            true => own.clone(),
            false => find("heddle-lab", &own)
                .context("there is no heddle-lab (cargo build -p heddle-lab)")?,
        };
        let heddle = find("heddle", &own);
        Ok(Self {
            lab,
            heddle,
            envoy: find("envoy", &own),
            keep: false,
        })
    }
}

fn find(name: &str, own: &Path) -> Option<PathBuf> {
    let beside = own.ancestors().skip(1).take(2).map(Path::to_owned);
    let path = env::var_os("PATH").unwrap_or_default();
    let path: Vec<PathBuf> = env::split_paths(&path).collect();
    beside
        .chain(path)
        .map(|folder| folder.join(name))
        .find(|found| found.is_file())
}
