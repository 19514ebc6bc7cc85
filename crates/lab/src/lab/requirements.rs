//! Checks of the user's rights and of the kernel.

use std::path::Path;

use anyhow::{bail, ensure};
use rustix::thread::CapabilitySet;

use super::file::Family;
use super::plan::Plan;

/// Capabilities, and what each is needed for.
const CAPABILITIES: [(CapabilitySet, &str); 3] = [
    (
        CapabilitySet::SYS_ADMIN,
        "CAP_SYS_ADMIN, to make namespaces and mounts",
    ),
    (
        CapabilitySet::NET_ADMIN,
        "CAP_NET_ADMIN, to make links and routes",
    ),
    (CapabilitySet::KILL, "CAP_KILL, to end its processes"),
];

/// Whether this process may make or remove a lab.
///
/// # Errors
/// Names the missing capability and the remedy.
pub(super) fn check_rights() -> anyhow::Result<()> {
    let own = rustix::thread::capabilities(None)?.effective;
    let missing: Vec<&str> = CAPABILITIES
        .iter()
        .filter(|(one, _)| !own.contains(*one))
        .map(|(_, what)| *what)
        .collect();
    if !missing.is_empty() {
        bail!(
            "a lab needs root: this process lacks {} (use sudo; in a container, start it with --privileged)",
            missing.join("; ")
        );
    }
    let euid = rustix::process::geteuid();
    ensure!(
        euid.is_root(),
        "a lab needs root: /run and the control groups belong to root (use sudo)"
    );
    Ok(())
}

/// Whether the lab can be made on this machine.
///
/// # Errors
/// Names the missing part and the remedy.
pub(super) fn check(plan: &Plan) -> anyhow::Result<()> {
    check_rights()?;
    for (file, what) in [
        (
            "/proc/thread-self/ns/net",
            "network namespaces (CONFIG_NET_NS)",
        ),
        (
            "/proc/thread-self/ns/uts",
            "UTS namespaces, for host names (CONFIG_UTS_NS)",
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
            "{file} does not exist, so a pod's own cannot be mounted over it (touch {file})"
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
