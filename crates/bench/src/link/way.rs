//! The ways from one proxy to the other, and which of them this Heddle offers.

use std::ffi::OsStr;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::Context;

use crate::authority::Authority;
use crate::child::Confinement;
use crate::findings::Findings;
use crate::report::ENVOY_PAIRS;
use crate::systems::{ProxyKind, Running, System, Work};

/// How a request gets from the near proxy to the far one.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Way {
    /// Two Heddles in a row, in the clear, without a mesh.
    Http1Plain,
    /// `heddle/1`: a connection for each exchange in flight.
    Http1Mtls,
    /// HTTP/2, as a reference.
    Http2Mtls,
    /// The link protocol.
    LinkMtls,
    /// Two Envoys with HTTP/1.1 over mutual TLS between them: a connection for each exchange in flight.
    EnvoyHttp1,
    /// The same with HTTP/2.
    EnvoyHttp2,
}

impl Way {
    pub(super) const ALL: [Way; 6] = [
        Way::Http1Plain,
        Way::Http1Mtls,
        Way::Http2Mtls,
        Way::LinkMtls,
        Way::EnvoyHttp1,
        Way::EnvoyHttp2,
    ];

    /// The name in tables and ratios.
    pub(super) fn name(self) -> &'static str {
        match self {
            Way::Http1Plain => "http1-plain",
            Way::Http1Mtls => "http1-mtls",
            Way::Http2Mtls => "http2-mtls",
            Way::LinkMtls => "link-mtls",
            Way::EnvoyHttp1 => ENVOY_PAIRS[0],
            Way::EnvoyHttp2 => ENVOY_PAIRS[1],
        }
    }

    /// The value of `between_nodes` in the settings of the nodes, where that has an effect.
    fn between_nodes(self) -> Option<&'static str> {
        match self {
            Way::Http1Plain | Way::EnvoyHttp1 | Way::EnvoyHttp2 => None,
            Way::Http1Mtls => Some("http1"),
            Way::Http2Mtls => Some("http2"),
            Way::LinkMtls => Some("link"),
        }
    }
}

/// Settings of nodes with that protocol between them.
fn settings(between_nodes: &str) -> String {
    format!("proxy:\n  between_nodes: {between_nodes}\n")
}

pub(super) struct MeasuredPrograms<'a> {
    pub(super) heddle: &'a Path,
    pub(super) envoy: &'a Path,
    /// Other Heddles by name, of which only the links are measured.
    pub(super) others: &'a [(String, PathBuf)],
}

/// The name in tables of the links of another Heddle.
pub(super) fn name_of_other(name: &str) -> String {
    format!("{}-{name}", Way::LinkMtls.name())
}

/// The ways that can be measured.
pub(super) struct Ways {
    pub(super) ways: Vec<Way>,
    /// In the order of `ways`.
    pub(super) systems: Vec<System>,
    /// The folder of the settings files.
    _dir: tempfile::TempDir,
}

impl Ways {
    /// The name of a way in tables and ratios.
    pub(super) fn name(&self, index: usize) -> &str {
        &self.systems[index].name
    }

    /// Starts the pair of proxies of a way.
    ///
    /// # Errors
    /// When it does not start.
    pub(super) fn start(
        &self,
        index: usize,
        work: &Work,
        place: &Confinement,
    ) -> anyhow::Result<Running> {
        let system = &self.systems[index];
        match self.ways[index] {
            Way::Http1Plain => system.start_row(work, place),
            Way::Http1Mtls | Way::Http2Mtls | Way::LinkMtls | Way::EnvoyHttp1 | Way::EnvoyHttp2 => {
                system.start_pair(work, place, &Authority::new()?)
            }
        }
    }
}

/// Finds out which ways can be measured. A Heddle whose settings have no `between_nodes` speaks `heddle/1`.
///
/// # Errors
/// When a program cannot be run, or nothing is left to measure.
pub(super) fn find(
    programs: &MeasuredPrograms<'_>,
    only: &[String],
    findings: &mut Findings,
) -> anyhow::Result<Ways> {
    let names = Way::ALL.map(Way::name);
    for name in only {
        anyhow::ensure!(
            names.contains(&name.as_str()),
            "{name:?} is none of {names:?}"
        );
    }
    let dir = tempfile::Builder::new().prefix("heddle-lab-").tempdir()?;
    let (mut ways, mut systems) = (Vec::new(), Vec::new());
    let knows = |file: &Path| understands(programs.heddle, file);
    let any = dir.path().join("any.yaml");
    fs::write(&any, settings("http1"))?;
    let has_choice = knows(&any)?;
    for way in Way::ALL {
        if !only.is_empty() && !only.iter().any(|name| name == way.name()) {
            continue;
        }
        let (kind, program) = match way {
            Way::EnvoyHttp1 | Way::EnvoyHttp2 => (ProxyKind::Envoy, programs.envoy),
            _ => (ProxyKind::Heddle, programs.heddle),
        };
        let mut system = System::new(way.name(), kind, program)?;
        system.http2 = way == Way::EnvoyHttp2;
        if let Some(between_nodes) = way.between_nodes() {
            let file = dir.path().join(format!("{}.yaml", way.name()));
            fs::write(&file, settings(between_nodes))?;
            if knows(&file)? {
                system = system.with_settings(&file);
            } else if has_choice || way != Way::Http1Mtls {
                findings.say(format!(
                    "Not measured: {}, which this Heddle does not offer",
                    way.name()
                ));
                continue;
            }
        }
        ways.push(way);
        systems.push(system);
    }
    for (name, program) in programs.others {
        let file = dir.path().join("link-of-others.yaml");
        fs::write(&file, settings("link"))?;
        anyhow::ensure!(
            understands(program, &file)?,
            "{name}: {} has no links",
            program.display()
        );
        let system = System::new(&name_of_other(name), ProxyKind::Heddle, program)?;
        ways.push(Way::LinkMtls);
        systems.push(system.with_settings(&file));
    }
    findings.say(
        "Not measured: link-plain, which no Heddle offers: traffic between nodes is always encrypted",
    );
    let versions = systems.iter().map(|s| format!("{} {}", s.name, s.version));
    findings.say(versions.collect::<Vec<_>>().join(" · "));
    anyhow::ensure!(!systems.is_empty(), "nothing to measure");
    Ok(Ways {
        ways,
        systems,
        _dir: dir,
    })
}

/// Whether a Heddle accepts these settings.
fn understands(heddle: &Path, settings: &Path) -> anyhow::Result<bool> {
    let arguments: [&OsStr; 3] = ["validate".as_ref(), "--config".as_ref(), settings.as_ref()];
    let output = Command::new(heddle).args(arguments).output();
    let output = output.with_context(|| format!("cannot run {}", heddle.display()))?;
    Ok(output.status.success())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_way_has_a_name_and_heddles_of_a_mesh_a_setting_of_their_own() {
        let mut names = Way::ALL.map(Way::name).to_vec();
        names.sort_unstable();
        names.dedup();
        assert_eq!(names.len(), Way::ALL.len());
        let said: Vec<&str> = Way::ALL
            .iter()
            .filter_map(|way| way.between_nodes())
            .collect();
        assert_eq!(said, ["http1", "http2", "link"]);
        assert_eq!(settings("link"), "proxy:\n  between_nodes: link\n");
    }
}
