//! What a lab needs of the user who runs it and of the kernel.

use std::path::Path;

use anyhow::{bail, ensure};
use rustix::thread::CapabilitySet;

use super::file::Family;
use super::plan::Plan;

/// What is needed, and for what.
const CAPABILITIES: [(CapabilitySet, &str); 3] = [
    (
        CapabilitySet::SYS_ADMIN,
        "CAP_SYS_ADMIN, to make namespaces and mounts",
    ),
    (
        CapabilitySet::NET_ADMIN,
        "CAP_NET_ADMIN, to make links and routes",
    ),
    (CapabilitySet::KILL, "CAP_KILL, to end what it has started"),
];

/// Whether this process may make or remove a lab.
///
/// # Errors
/// Says which capability is missing, and what to do.
pub(super) fn check_rights() -> anyhow::Result<()> {
    let own = rustix::thread::capabilities(None)?.effective;
    let missing: Vec<&str> = CAPABILITIES
        .iter()
        .filter(|(one, _)| !own.contains(*one))
        .map(|(_, what)| *what)
        .collect();
    if !missing.is_empty() {
        bail!(
            "a lab takes root, it lacks {} (use sudo; in a container, start it with --privileged)",
            missing.join("; ")
        );
    }
    let euid = rustix::process::geteuid();
    ensure!(
        euid.is_root(),
        "a lab takes root: /run and the control groups are root's (use sudo)"
    );
    Ok(())
}

/// Whether the lab can be made on this machine.
///
/// # Errors
/// Says what is missing, and what to do.
pub(super) fn check(plan: &Plan) -> anyhow::Result<()> {
    check_rights()?;
    for (file, what) in [
        (
            "/proc/thread-self/ns/net",
            "network namespaces (CONFIG_NET_NS)",
        ),
        (
            "/proc/thread-self/ns/uts",
            "names of hosts of their own (CONFIG_UTS_NS)",
        ),
        (
            "/proc/sys/net/ipv4",
            "/proc with the settings of the network (mount -t proc proc /proc)",
        ),
    ] {
        ensure!(Path::new(file).exists(), "the kernel lacks {what}");
    }
    for file in ["/etc/resolv.conf", "/etc/hosts"] {
        ensure!(
            Path::new(file).exists(),
            "there is no {file} that a pod's own could be put over (touch {file})"
        );
    }
    let v6 = Path::new("/proc/sys/net/ipv6").exists();
    let wants = plan
        .pods
        .iter()
        .find(|pod| pod.address(Family::V6).is_some());
    if let (false, Some(pod)) = (v6, wants) {
        bail!(
            "the kernel has no IPv6, and pod {0} has an address of it (write families: [ipv4] under pods.{0})",
            pod.workload
        );
    }
    Ok(())
}
