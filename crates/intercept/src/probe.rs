//! Tests what this machine supports for interception.
//!
//! Every feature is tried, in a temporary control group and a temporary network namespace: the kernel version
//! says little about how a kernel was built, or what this process is permitted to do.

use std::fmt;
use std::fs::{self, File};
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::path::{Path, PathBuf};

use rustix::fs::statfs;
use serde::Serialize;

use crate::hooks::{BPF_FS_MAGIC, GROUPS, Trial, try_nft};
use crate::{cgroup, namespace, routes};

#[cfg(test)]
mod tests;

/// The usual mount point of the BPF file system.
const BPF_FS: &str = "/sys/fs/bpf";
/// Required capabilities with their numbers (capabilities(7)).
const CAPABILITIES: [(&str, u32); 2] = [("CAP_NET_ADMIN", 12), ("CAP_SYS_ADMIN", 21)];

/// The result of the tests.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Probe {
    /// The hooks that `auto` chooses here: `bpf`, `nft`, or none.
    pub hooks: Option<&'static str>,
    /// One finding per tested feature.
    pub findings: Vec<Finding>,
}

/// One tested feature.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Finding {
    /// Name of the feature.
    pub name: &'static str,
    /// What interception uses it for.
    pub purpose: &'static str,
    /// Why it cannot be used; `None` when it can.
    pub missing: Option<String>,
}

impl Finding {
    /// Whether the feature can be used.
    pub fn is_there(&self) -> bool {
        self.missing.is_none()
    }
}

impl fmt::Display for Finding {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (name, purpose) = (self.name, self.purpose);
        match &self.missing {
            None => write!(f, "{name:<12} yes  {purpose}"),
            // A reason from the kernel may have several lines; a finding is one line.
            Some(why) => write!(f, "{name:<12} no   {purpose}: {}", why.replace('\n', " ")),
        }
    }
}

impl fmt::Display for Probe {
    /// One line per finding, and a conclusion.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for finding in &self.findings {
            writeln!(f, "{finding}")?;
        }
        match self.hooks {
            Some(kind) => writeln!(f, "pods can be enrolled, with hooks by {kind}"),
            None => writeln!(f, "pods cannot be enrolled here"),
        }
    }
}

/// Tests this machine. Takes some tenths of a second and leaves nothing behind.
pub fn probe() -> Probe {
    let mut findings = vec![
        finding(
            "privileges",
            "making sockets and hooks in pods",
            privileges(),
        ),
        finding(
            "cgroup2",
            "where hooks by BPF are attached",
            cgroup::mounted().map(drop),
        ),
    ];
    let (group, netns) = (Group::make(), namespace::create());
    findings.extend(programs(&group, &netns));
    findings.push(finding(
        "bpffs",
        "the guard of pods that refuse without a proxy",
        bpffs(),
    ));
    let within = |tried: fn(&OwnedFd) -> Result<(), String>| match &netns {
        Ok(netns) => tried(netns),
        Err(error) => Err(format!("no network namespace can be made: {error}")),
    };
    let replies = within(|netns| {
        let ready = routes::turn_on_loopback(netns.as_fd());
        let ready = ready.and_then(|()| routes::prepare(netns.as_fd()));
        ready.map_err(|error| error.to_string())
    });
    findings.push(finding(
        "transparent",
        "speaking to pods with their clients' addresses",
        replies,
    ));
    let nft = within(|netns| try_nft(netns.as_fd()).map_err(|error| error.to_string()));
    findings.push(finding(
        "nft",
        "hooks where those by BPF are not to be had",
        nft,
    ));
    Probe {
        hooks: choice(&findings),
        findings,
    }
}

/// The hooks that `auto` would choose.
fn choice(findings: &[Finding]) -> Option<&'static str> {
    let is_there = |name: &str| {
        findings
            .iter()
            .any(|found| found.name == name && found.is_there())
    };
    let mut programs = GROUPS.iter().map(|(name, ..)| *name);
    match is_there("privileges") && is_there("transparent") {
        true if is_there("cgroup2") && programs.all(is_there) => Some("bpf"),
        true if is_there("nft") => Some("nft"),
        _ => None,
    }
}

fn finding<E: fmt::Display>(
    name: &'static str,
    purpose: &'static str,
    tried: Result<(), E>,
) -> Finding {
    let missing = tried.err().map(|error| error.to_string());
    Finding {
        name,
        purpose,
        missing,
    }
}

/// Loads and attaches every kind of program.
fn programs(group: &io::Result<Group>, netns: &io::Result<OwnedFd>) -> Vec<Finding> {
    let places = match (group, netns) {
        (Ok(group), Ok(netns)) => Ok((group, netns)),
        (Err(error), _) => Err(format!(
            "no control group can be made to try it in: {error}"
        )),
        (_, Err(error)) => Err(format!(
            "no network namespace can be made to try it in: {error}"
        )),
    };
    let mut trial = places.and_then(|(group, netns)| {
        Trial::new(&group.file, netns.as_fd()).map_err(|error| error.to_string())
    });
    let purpose = |name: &str| match name {
        "connect" => "steering what pods dial",
        "sendmsg" => "refusing pods' datagrams",
        "getpeername" => "naming peers as programs dialled them",
        "sockops" => "following connections to their listeners",
        "packets" => "refusing datagrams of sockets that were connected before",
        "getsockopt" => "telling the proxy where connections were going",
        _ => "steering what arrives at pods",
    };
    GROUPS
        .iter()
        .map(|(name, programs)| {
            let tried = match &mut trial {
                Ok(trial) => trial.attach(programs).map_err(|error| error.to_string()),
                Err(error) => Err(error.clone()),
            };
            finding(name, purpose(name), tried)
        })
        .collect()
}

/// Whether this process has the privileges that a holder needs.
fn privileges() -> Result<(), String> {
    let status = fs::read_to_string("/proc/self/status").map_err(|error| error.to_string())?;
    let lacking = lacking(&status).ok_or("/proc/self/status does not say")?;
    match lacking.is_empty() {
        true => Ok(()),
        false => Err(format!(
            "this process lacks {}: be root",
            lacking.join(" and ")
        )),
    }
}

/// The required capabilities that are not effective, from the text of `/proc/self/status`.
fn lacking(status: &str) -> Option<Vec<&'static str>> {
    let effective = status
        .lines()
        .find_map(|line| line.strip_prefix("CapEff:"))?;
    let effective = u64::from_str_radix(effective.trim(), 16).ok()?;
    let has = |bit: u32| effective & (1 << bit) != 0;
    Some(
        CAPABILITIES
            .iter()
            .filter(|(_, bit)| !has(*bit))
            .map(|(name, _)| *name)
            .collect(),
    )
}

fn bpffs() -> Result<(), String> {
    match statfs(BPF_FS) {
        Ok(system) if system.f_type == BPF_FS_MAGIC => Ok(()),
        _ => Err(format!("none is mounted: mount -t bpf bpf {BPF_FS}")),
    }
}

/// A temporary control group, removed when dropped.
struct Group {
    path: PathBuf,
    file: File,
}

impl Group {
    fn make() -> io::Result<Self> {
        let (_, at) = cgroup::mounted()?;
        let path = at.join(format!("heddle-probe-{}", std::process::id()));
        fs::create_dir(&path)?;
        match File::open(&path) {
            Ok(file) => Ok(Group { path, file }),
            Err(error) => {
                remove(&path);
                Err(error)
            }
        }
    }
}

impl Drop for Group {
    fn drop(&mut self) {
        remove(&self.path);
    }
}

fn remove(group: &Path) {
    if let Err(error) = fs::remove_dir(group) {
        tracing::warn!("cannot remove {}: {error}", group.display());
    }
}
