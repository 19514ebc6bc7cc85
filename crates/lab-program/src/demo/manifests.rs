//! The bookstore's manifests, in a temporary folder that the demo edits.

#[cfg(test)]
mod tests;

use std::collections::BTreeMap;
use std::fs;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};

use anyhow::{Context, ensure};
use tempfile::TempDir;

use super::mesh::NODES;

/// The manifests of the same example in pods.
const POD_FILES: [(&str, &str); 4] = [
    (
        "namespace.yaml",
        include_str!("../../../../examples/lab/bookstore/namespace.yaml"),
    ),
    (
        "services.yaml",
        include_str!("../../../../examples/lab/bookstore/services.yaml"),
    ),
    (
        "route.yaml",
        include_str!("../../../../examples/lab/bookstore/route.yaml"),
    ),
    (
        "workloads.yaml",
        include_str!("../../../../examples/lab/bookstore/workloads.yaml"),
    ),
];

/// The example's manifests, built in, so that the program needs no other files.
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

/// Marks a workload of the example that the demo leaves out.
const OUTSIDER: &str = "\n  name: stranger\n";

/// Manifests that the acts add.
#[derive(Clone, Copy, Debug)]
pub(super) enum Extra {
    /// A workload that has no reason to call details.
    Intruder,
    /// A policy that refuses the intruder.
    Policy,
    /// A workload added after the root was replaced.
    Reader,
}

impl Extra {
    const ALL: [Extra; 3] = [Extra::Intruder, Extra::Policy, Extra::Reader];

    /// Its file name.
    pub(super) fn file(self) -> &'static str {
        match self {
            Extra::Intruder => "intruder.yaml",
            Extra::Policy => "policy.yaml",
            Extra::Reader => "reader.yaml",
        }
    }

    fn text(self) -> &'static str {
        match self {
            Extra::Intruder => include_str!("manifests/intruder.yaml"),
            Extra::Policy => include_str!("manifests/policy.yaml"),
            Extra::Reader => include_str!("manifests/reader.yaml"),
        }
    }
}

/// A folder of manifests inside a temporary folder; removed when dropped.
pub(super) struct ManifestFolder {
    dir: PathBuf,
    scratch: TempDir,
    /// Contents of the files that acts add, by file name.
    later: BTreeMap<&'static str, String>,
}

impl ManifestFolder {
    /// Writes the manifests of the example, with each workload on a node.
    ///
    /// # Errors
    /// The folder for temporary files cannot be written to.
    pub(super) fn write() -> anyhow::Result<Self> {
        Self::write_files(&FILES)
    }

    /// As [`ManifestFolder::write`], for pods. Workloads added later are included, since a lab assigns addresses only
    /// once.
    ///
    /// # Errors
    /// The folder for temporary files cannot be written to.
    pub(super) fn write_for_pods() -> anyhow::Result<Self> {
        let manifests = Self::write_files(&POD_FILES)?;
        for extra in [Extra::Intruder, Extra::Reader] {
            manifests.add(extra)?;
        }
        Ok(manifests)
    }

    /// Switches to the manifests in `dir`, copies that have addresses. The files that acts add are taken out until
    /// then.
    ///
    /// # Errors
    /// The folder cannot be read or written to.
    pub(super) fn move_to(&mut self, dir: PathBuf) -> anyhow::Result<()> {
        let route = fs::read_to_string(self.route())?;
        self.dir = dir;
        for extra in [Extra::Intruder, Extra::Reader] {
            let file = self.dir.join(extra.file());
            let text = fs::read_to_string(&file).with_context(|| file.display().to_string())?;
            self.later.insert(extra.file(), text);
            fs::remove_file(&file)?;
        }
        // The original text: it has no addresses, and is easier for users to edit.
        self.put("route.yaml", &route)
    }

    fn write_files(files: &[(&str, &str)]) -> anyhow::Result<Self> {
        let scratch = tempfile::Builder::new()
            .prefix("heddle-demo-")
            .tempdir()
            .context("cannot make a folder for the manifests")?;
        let dir = scratch.path().join("manifests");
        fs::create_dir(&dir)?;
        for (name, text) in files {
            fs::write(dir.join(name), placed(text))
                .with_context(|| format!("cannot write {name}"))?;
        }
        let later = Extra::ALL.map(|extra| (extra.file(), extra.text().to_owned()));
        Ok(Self {
            dir,
            scratch,
            later: later.into(),
        })
    }

    /// # Errors
    /// It cannot be written.
    pub(super) fn add(&self, extra: Extra) -> anyhow::Result<()> {
        let text = self.later.get(extra.file());
        self.put(extra.file(), text.map_or("", String::as_str))
    }

    pub(super) fn dir(&self) -> &Path {
        &self.dir
    }

    /// The temporary folder around it, for files of the mesh, which does not watch it.
    pub(super) fn scratch(&self) -> &Path {
        self.scratch.path()
    }

    /// The file of the reviews' route.
    pub(super) fn route(&self) -> PathBuf {
        self.dir.join("route.yaml")
    }

    /// Changes the weights of the two versions in the route.
    ///
    /// # Errors
    /// The file does not exist, or does not have exactly two weights.
    pub(super) fn set_weights(&self, v1: u32, v2: u32) -> anyhow::Result<()> {
        let edited = with_weights(&fs::read_to_string(self.route())?, [v1, v2])?;
        self.put("route.yaml", &edited)
    }

    /// Replaces a file atomically, as editors do.
    fn put(&self, name: &str, text: &str) -> anyhow::Result<()> {
        let beside = self.dir.join(format!(".{name}.new"));
        let written = fs::write(&beside, text);
        let written = written.and_then(|()| fs::rename(&beside, self.dir.join(name)));
        written.with_context(|| format!("cannot write {name}"))
    }
}

/// Sets the node of each workload of the example.
fn placed(text: &str) -> String {
    let documents = text.split("\n---\n");
    let documents = documents.filter(|document| !document.contains(OUTSIDER));
    let documents = documents.map(|document| {
        let is = |name: &str| document.contains(&format!("\n  name: {name}\n"));
        let node = match is("shopper") || is("productpage") {
            true => NODES[0],
            false => NODES[1],
        };
        if !document.contains("\nkind: LocalWorkload\n") {
            return document.to_owned();
        }
        // Replaces a node that the example names.
        let lines = document.lines();
        let lines = lines.filter(|line| !line.starts_with("  nodeName: "));
        let document = lines.collect::<Vec<_>>().join("\n") + "\n";
        document.replace("\nspec:\n", &format!("\nspec:\n  nodeName: {node}\n"))
    });
    documents.collect::<Vec<_>>().join("\n---\n")
}

/// The addresses on which the services will listen, taken from their commands.
pub(super) fn addresses() -> Vec<SocketAddr> {
    FILES
        .iter()
        .flat_map(|(_, text)| text.split("--listen, \"").skip(1))
        .filter_map(|rest| rest.split('"').next()?.parse().ok())
        .collect()
}

/// The text of a route with new weights, in the order of the old ones.
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
