//! A node of a lab.

use std::ffi::OsStr;
use std::fs;
use std::net::IpAddr;
use std::path::PathBuf;
use std::process::Command;
use std::time::Duration;

use anyhow::Context;
use heddle_model::NodeName;

use super::cgroup::Group;
use super::file::Family;
use super::namespace::Role;
use super::place::Place;
use super::plan::NodePlan;
use super::process::Note;
use super::{Lab, address, dns, process};

/// A node of a lab that is up.
#[derive(Debug, Clone, Copy)]
pub struct Node<'l> {
    pub(super) lab: &'l Lab,
    pub(super) plan: &'l NodePlan,
}

impl<'l> Node<'l> {
    /// Its name, settings and addresses, as planned.
    pub fn plan(&self) -> &'l NodePlan {
        self.plan
    }

    /// A command on the node itself, beside its proxy but not in its control group. `heddle` finds the sockets of
    /// this node by itself.
    ///
    /// # Errors
    /// The lab is not up any more.
    pub fn command(&self, program: impl AsRef<OsStr>) -> anyhow::Result<Command> {
        let mut command = self.place("tools").command(program)?;
        self.lab.with_programs(&mut command)?;
        self.lab
            .with_sockets_of(&mut command, &self.mesh_folder())?;
        Ok(command)
    }

    /// Its network namespace.
    pub fn network(&self) -> PathBuf {
        Role::Node(self.plan.name.as_str()).path(&self.lab.plan.name)
    }

    /// Its underlay addresses, one of each family, where other nodes reach it.
    pub fn addresses(&self) -> [IpAddr; 2] {
        address::FAMILIES.map(|family| self.address(family))
    }

    /// Its underlay address of one family.
    pub fn address(&self, family: Family) -> IpAddr {
        address::underlay(self.plan.number, family)
    }

    /// The folder of the control group of its holder and proxy in every hierarchy.
    pub fn proxy_control_groups(&self) -> Vec<PathBuf> {
        self.group("heddle").folders()
    }

    pub(super) fn group_of(lab: &Lab, node: &NodeName) -> Group {
        lab.groups.child(format!("node-{node}"))
    }

    pub(super) fn group(&self, part: &str) -> Group {
        Self::group_of(self.lab, &self.plan.name).child(part)
    }

    pub(super) fn place(&self, part: &str) -> Place {
        Place {
            network: self.network(),
            group: self.group(part),
            pod: None,
        }
    }

    pub(super) fn start_dns(&self) -> anyhow::Result<Note> {
        let name = &self.plan.name;
        let mut command = self.place("dns").service(&self.lab.programs.lab)?;
        command
            .arg("dns")
            .arg("--lab")
            .arg(self.lab.plan.name.as_str());
        for family in address::FAMILIES {
            let gateway = address::gateway(self.plan.number, family);
            command.arg("--address").arg(gateway.to_string());
        }
        let what = format!("the DNS of node {name}");
        self.lab
            .start_service(&what, &format!("dns-{name}"), command)
    }

    /// Waits until the node's DNS listens, as its log says.
    pub(super) fn wait_for_dns(&self) -> anyhow::Result<()> {
        let file = format!("dns-{}.log", self.plan.name);
        let log = self.lab.folder.logs().join(file);
        let is_ready = || fs::read_to_string(&log).is_ok_and(|text| text.contains(dns::READY));
        process::wait_until(Duration::from_secs(10), is_ready).with_context(|| {
            let text = fs::read_to_string(&log).unwrap_or_default();
            format!("the DNS of node {} does not start: {text}", self.plan.name)
        })
    }
}
