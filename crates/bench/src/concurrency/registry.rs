//! Registration of the providers: in an etcd of the experiment's own if this Heddle can follow one, else in the folder
//! of manifests.

use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::Context;

use super::plan::{ROOMS, Room};
use super::provider::{ProviderEndpoint, SERVICE, manifest};
use crate::child::{Child, Confinement, words};
use crate::nodes::write_manifest;
use crate::{etcd, install};

/// The features of the measured Heddle that the experiment needs to know.
#[derive(Debug, Clone)]
pub(super) struct Abilities {
    /// The etcd to register in; `None` if `heddle register` does not exist.
    etcd: Option<PathBuf>,
    /// Whether endpoints may declare how many requests they take at once.
    room: bool,
}

/// An etcd with one member, and the processes that register in it, which end before etcd does.
pub(super) struct Registered {
    pub(super) url: Option<String>,
    pub(super) processes: Vec<Child>,
}

impl Abilities {
    /// Detects the features, and installs etcd where it is needed.
    ///
    /// # Errors
    /// When the program cannot be run, or etcd cannot be installed.
    pub(super) fn of(heddle: &Path) -> anyhow::Result<Abilities> {
        let registers = succeeds(Command::new(heddle).args(["register", "--help"]))?;
        let dir = tempfile::Builder::new().prefix("heddle-lab-").tempdir()?;
        let provider = ProviderEndpoint {
            name: "small",
            address: std::net::Ipv4Addr::new(127, 3, 0, 1),
            port: 80,
            room: 1,
        };
        let told = ROOMS.iter().find(|room| room.told).context("a room")?;
        write_manifest(dir.path(), &manifest(&[provider], told.told, false)?)?;
        let folder = dir.path().join("mesh");
        Ok(Abilities {
            etcd: registers.then(install::etcd).transpose()?,
            room: succeeds(Command::new(heddle).arg("validate").arg(folder))?,
        })
    }

    /// Remarks for the report.
    pub(super) fn said(&self) -> Vec<String> {
        let mut said = vec![match &self.etcd {
            Some(_) => {
                "Heddle's providers register in etcd; Envoy's are in its configuration".to_owned()
            }
            None => "Heddle's providers are in manifests: it has no `heddle register`".to_owned(),
        }];
        if !self.room {
            said.push("Heddle does not know room: it has no heddle.dev/max-requests".to_owned());
        }
        said
    }

    /// Writes the folder of manifests, and registers the providers in etcd where there is one.
    ///
    /// # Errors
    /// When etcd or a process that registers does not start.
    pub(super) fn register(
        &self,
        heddle: &Path,
        providers: &[ProviderEndpoint],
        room: &Room,
        dir: &Path,
    ) -> anyhow::Result<Registered> {
        let told = room.told && self.room;
        let in_etcd = self.etcd.is_some();
        let in_folder = if in_etcd { &[] } else { providers };
        write_manifest(dir, &manifest(in_folder, told, in_etcd)?)?;
        let Some(etcd) = &self.etcd else {
            return Ok(Registered {
                url: None,
                processes: Vec::new(),
            });
        };
        let (etcd, client) = etcd::start(etcd, &beside(), dir)?;
        let url = format!("http://{client}");
        let mut processes = Vec::new();
        for provider in providers {
            let mut command = words([heddle.as_os_str(), "register".as_ref()]);
            command.extend(words([&format!("lab/{SERVICE}"), "--name", provider.name]));
            let address = SocketAddr::from((provider.address, provider.port));
            command.extend(words(["--address", &address.to_string()]));
            command.extend(words([
                "--node",
                provider.name,
                "--service-account",
                SERVICE,
            ]));
            command.extend(words(["--etcd", &url]));
            if told {
                command.extend(words(["--max-requests", &provider.room.to_string()]));
            }
            let log = dir.join(format!("register-{}.log", provider.name));
            let name = format!("heddle register {}", provider.name);
            processes.push(Child::start(&name, &beside(), &command, &log, false)?);
        }
        processes.push(etcd);
        Ok(Registered {
            url: Some(url),
            processes,
        })
    }
}

/// Core 1; the proxies that are measured have core 0.
fn beside() -> Confinement {
    Confinement {
        core: Some(1),
        groups: Vec::new(),
    }
}

fn succeeds(command: &mut Command) -> anyhow::Result<bool> {
    let output = command.output().with_context(|| format!("{command:?}"))?;
    Ok(output.status.success())
}
