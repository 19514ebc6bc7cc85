//! A pod's own files in /etc: its hostname, and its DNS server.

use std::fmt::Write;
use std::fs;
use std::path::Path;

use anyhow::Context;

use super::address;
use super::file::Family;
use super::plan::{Plan, PodPlan};

#[cfg(test)]
mod tests;

/// Limit of Linux for host names (gethostname(2)).
const MAX_HOSTNAME: usize = 64;

/// Writes the files that are mounted over those of /etc.
///
/// # Errors
/// The folder cannot be made or written to.
pub(super) fn write(plan: &Plan, pod: &PodPlan, folder: &Path) -> anyhow::Result<()> {
    fs::create_dir(folder).with_context(|| format!("cannot make {}", folder.display()))?;
    for (name, text) in [
        ("resolv.conf", resolv_conf(plan, pod)),
        ("hosts", hosts(pod)),
        ("hostname", hostname(pod) + "\n"),
        // The host's may name sources that a pod does not have.
        (
            "nsswitch.conf",
            "passwd: files\ngroup: files\nhosts: files dns\n".to_owned(),
        ),
    ] {
        fs::write(folder.join(name), text).with_context(|| folder.display().to_string())?;
    }
    Ok(())
}

fn resolv_conf(plan: &Plan, pod: &PodPlan) -> String {
    let node = plan.nodes.iter().find(|node| node.name == pod.node);
    let mut text = String::new();
    for own in &pod.addresses {
        let family = if own.is_ipv4() {
            Family::V4
        } else {
            Family::V6
        };
        if let Some(node) = node {
            let server = address::gateway(node.number, family);
            // Writing to a String cannot fail.
            let _infallible = writeln!(text, "nameserver {server}");
        }
    }
    let namespace = &pod.workload.namespace;
    text + &format!(
        "search {namespace}.svc.cluster.local svc.cluster.local cluster.local\noptions ndots:5\n"
    )
}

fn hosts(pod: &PodPlan) -> String {
    let mut text = "127.0.0.1 localhost\n::1 localhost ip6-localhost ip6-loopback\n".to_owned();
    for own in &pod.addresses {
        let _infallible = writeln!(text, "{own} {}", hostname(pod));
    }
    text
}

/// The host name of a pod: the pod's name, cut to the limit of host names.
pub(super) fn hostname(pod: &PodPlan) -> String {
    let name = pod.workload.name.as_str();
    let cut = &name[..name.len().min(MAX_HOSTNAME - 1)];
    cut.trim_end_matches(['.', '-']).to_owned()
}
