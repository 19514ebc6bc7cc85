//! The bookstore's manifests, in a folder of the demo's own that it may edit.

#[cfg(test)]
mod tests;

use std::fs;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};

use anyhow::{Context, ensure};
use tempfile::TempDir;

/// Built in, so that the program needs nothing beside it.
const FILES: [(&str, &str); 4] = [
    (
        "namespace.yaml",
        include_str!("../../../../examples/bookstore/manifests/namespace.yaml"),
    ),
    (
        "services.yaml",
        include_str!("../../../../examples/bookstore/manifests/services.yaml"),
    ),
    (
        "route.yaml",
        include_str!("../../../../examples/bookstore/manifests/route.yaml"),
    ),
    (
        "workloads.yaml",
        include_str!("../../../../examples/bookstore/manifests/workloads.yaml"),
    ),
];

/// A folder of manifests in a folder of our own; removed when dropped.
pub(super) struct Manifests {
    dir: PathBuf,
    scratch: TempDir,
}

impl Manifests {
    /// Writes the manifests as they are in the repository.
    ///
    /// # Errors
    /// The folder for temporary files cannot be written to.
    pub(super) fn write() -> anyhow::Result<Self> {
        let scratch = tempfile::Builder::new()
            .prefix("heddle-demo-")
            .tempdir()
            .context("cannot make a folder for the manifests")?;
        let dir = scratch.path().join("manifests");
        fs::create_dir(&dir)?;
        for (name, text) in FILES {
            fs::write(dir.join(name), text).with_context(|| format!("cannot write {name}"))?;
        }
        Ok(Self { dir, scratch })
    }

    pub(super) fn dir(&self) -> &Path {
        &self.dir
    }

    /// A folder beside them, for what the mesh writes; it is not watched.
    pub(super) fn scratch(&self) -> &Path {
        self.scratch.path()
    }

    /// The file of the reviews' route.
    pub(super) fn route(&self) -> PathBuf {
        self.dir.join("route.yaml")
    }

    /// Edits how the route shares traffic between the versions, the way editors save: the new
    /// file takes the old one's place at once.
    ///
    /// # Errors
    /// The file is not there, or has not the two weights.
    pub(super) fn set_weights(&self, v1: u32, v2: u32) -> anyhow::Result<()> {
        let path = self.route();
        let edited = with_weights(&fs::read_to_string(&path)?, [v1, v2])?;
        let beside = self.dir.join(".route.yaml.new");
        fs::write(&beside, edited)?;
        fs::rename(&beside, &path).context("cannot replace the route")
    }
}

/// Where the services will listen, as their commands say.
pub(super) fn addresses() -> Vec<SocketAddr> {
    FILES
        .iter()
        .flat_map(|(_, text)| text.split("--listen, \"").skip(1))
        .filter_map(|rest| rest.split('"').next()?.parse().ok())
        .collect()
}

/// The text of a route with other weights, in the order in which they are there.
fn with_weights(text: &str, weights: [u32; 2]) -> anyhow::Result<String> {
    let mut left = weights.iter();
    let lines: Vec<String> = text
        .lines()
        .map(|line| match line.split_once("weight: ") {
            Some((indent, _)) if indent.trim().is_empty() => match left.next() {
                Some(weight) => format!("{indent}weight: {weight}"),
                None => line.to_owned(),
            },
            _ => line.to_owned(),
        })
        .collect();
    ensure!(
        left.next().is_none(),
        "the route has not {} weights",
        weights.len()
    );
    Ok(lines.join("\n") + "\n")
}
