//! A pod of a lab.

use std::ffi::OsStr;
use std::path::PathBuf;
use std::process::Command;

use anyhow::Context;

use super::cgroup::Group;
use super::file::Carried;
use super::namespace::Role;
use super::place::{self, Place, PodView};
use super::plan::{NodePlan, PodPlan};
use super::process::Note;
use super::{Lab, Node, etc};

/// A pod of a lab that is up.
#[derive(Debug, Clone, Copy)]
pub struct Pod<'l> {
    pub(super) lab: &'l Lab,
    pub(super) plan: &'l PodPlan,
}

impl<'l> Pod<'l> {
    /// Its name, addresses and program, as planned.
    pub fn plan(&self) -> &'l PodPlan {
        self.plan
    }

    /// A command in the pod: with its network, its /etc and its limits. If the pod has a proxy of its own, `heddle`
    /// finds that proxy's sockets by itself.
    ///
    /// # Errors
    /// The lab is not up any more.
    pub fn command(&self, program: impl AsRef<OsStr>) -> anyhow::Result<Command> {
        let mut command = self.place().command(program)?;
        self.lab.with_programs(&mut command)?;
        if self.lab.plan.carried == Carried::Pod {
            self.lab
                .with_sockets_of(&mut command, &self.mesh_folder())?;
        }
        Ok(command)
    }

    /// Its network namespace.
    pub fn network(&self) -> PathBuf {
        Role::Pod(&self.plan.file_name()).path(&self.lab.plan.name)
    }

    /// The folder of its control group in every hierarchy, where the kernel shows the resource usage of its programs.
    pub fn control_groups(&self) -> Vec<PathBuf> {
        self.group().folders()
    }

    /// The control groups of the holder and the proxy, or of the Envoy, that carry its traffic; a node's proxy also
    /// carries other pods'.
    pub fn proxy_control_groups(&self) -> Vec<PathBuf> {
        match self.lab.plan.carried {
            Carried::Pod => self.proxy_group().folders(),
            _ if self.has_envoy() => self.proxy_group().folders(),
            _ => {
                let node = Node::group_of(self.lab, &self.plan.node);
                node.child("heddle").folders()
            }
        }
    }

    pub(super) fn group(&self) -> Group {
        let node = Node::group_of(self.lab, &self.plan.node);
        node.child("pods").child(self.plan.file_name())
    }

    /// The group of its own proxy or Envoy.
    pub(super) fn proxy_group(&self) -> Group {
        let node = Node::group_of(self.lab, &self.plan.node);
        node.child("proxies").child(self.plan.file_name())
    }

    pub(super) fn folder(&self) -> PathBuf {
        self.lab.folder.pod(&self.plan.file_name())
    }

    pub(super) fn node(&self) -> Option<&'l NodePlan> {
        self.lab.plan.node(self.plan.node.as_str())
    }

    pub(super) fn place(&self) -> Place {
        Place {
            network: self.network(),
            group: self.group(),
            pod: Some(PodView {
                hostname: etc::hostname(self.plan),
                files: place::over_etc(&self.folder()),
            }),
        }
    }

    pub(super) fn start(&self) -> anyhow::Result<Option<Note>> {
        let Some(program) = &self.plan.command else {
            return Ok(None);
        };
        let name = &self.plan.workload;
        let (first, rest) = program.argv.split_first().context("an empty command")?;
        let mut command = self.place().service(first)?;
        command.args(rest).envs(&program.env);
        if let Some(folder) = &program.working_dir {
            command.current_dir(folder);
        }
        let file = self.plan.process_name();
        let what = format!("the program of pod {name}");
        self.lab.start_service(&what, &file, command).map(Some)
    }
}
