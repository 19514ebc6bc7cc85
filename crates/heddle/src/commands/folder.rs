//! Reads a folder of manifests as the command that it is meant for does.

use std::path::Path;

use heddle_compile::{Addresses, Options, load_with};
use heddle_model::Mesh;
use heddle_model::report::{Problem, Report, Severity};
use heddle_node::settings::MeshSettings;
use serde::Serialize;

use crate::settings;

/// Command that a folder is meant for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, clap::ValueEnum)]
#[serde(rename_all = "lowercase")]
pub(super) enum Reader {
    /// `heddle up`: everything is on this node
    Up,
    /// `heddle control`: each workload says which node it is on
    Control,
    /// `heddle-lab up`: pods and Services are given their addresses
    Lab,
}

impl Reader {
    fn options(self, mesh: &MeshSettings) -> Options {
        match self {
            Reader::Up => settings::options(mesh),
            Reader::Control => settings::options_by_node(mesh),
            Reader::Lab => Options {
                addresses: Addresses::Given,
                ..settings::options(mesh)
            },
        }
    }
}

/// Result of reading a folder, and the command that it was read for.
pub(super) struct Read {
    pub(super) mesh: Option<Mesh>,
    pub(super) report: Report,
    pub(super) reader: Reader,
}

/// Reads a folder for a command. Without one, as `heddle up` does; but if addresses are missing there and `heddle-lab
/// up` would accept the folder, as that command does.
pub(super) fn read(dir: &Path, settings: &MeshSettings, reader: Option<Reader>) -> Read {
    let read_for = |reader: Reader| {
        let (mesh, report) = load_with(dir, &reader.options(settings));
        Read {
            mesh,
            report,
            reader,
        }
    };
    let asked = read_for(reader.unwrap_or(Reader::Up));
    let addresses = asked.report.addresses;
    if reader.is_some() || asked.mesh.is_some() || addresses.missing == 0 {
        return asked;
    }
    let mut lab = read_for(Reader::Lab);
    if addresses.are_all_missing() {
        return lab;
    }
    if lab.mesh.is_none() {
        return asked;
    }
    // Some workloads have an address, so the others' addresses may have been forgotten.
    let refused = asked.report.problems.into_iter();
    let refused = refused.filter(|problem| problem.severity == Severity::Error);
    let warned = refused.map(|problem| Problem {
        severity: Severity::Warning,
        reason: format!("heddle up refuses it: {}", problem.reason),
        ..problem
    });
    let of_lab = std::mem::take(&mut lab.report.problems);
    lab.report.problems = warned.chain(of_lab).collect();
    lab
}
