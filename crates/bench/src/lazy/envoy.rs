//! A stock Envoy of the lab: its memory, its time, and what it says of itself.

use std::fs::File;
use std::net::SocketAddr;
use std::os::fd::AsFd;
use std::path::{Path, PathBuf};
use std::thread;

use anyhow::Context;
use rustix::thread::{LinkNameSpaceType, move_into_link_name_space};

use crate::account;
use crate::ask;

/// Where Envoys answer about themselves, in their pods.
const ADMIN: SocketAddr =
    SocketAddr::new(std::net::IpAddr::V4(std::net::Ipv4Addr::LOCALHOST), 15_000);

/// An Envoy that runs.
pub(super) struct Envoy {
    pub(super) pid: u32,
    network: PathBuf,
}

/// What an Envoy has been sent since it started.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub(super) struct Sent {
    /// Messages with clusters.
    pub(super) cds: f64,
    /// Clusters that it has.
    pub(super) clusters: f64,
}

impl Envoy {
    pub(super) fn new(pid: u32, network: PathBuf) -> Envoy {
        Envoy { pid, network }
    }

    /// Private memory, in MiB.
    ///
    /// # Errors
    /// When the process is gone.
    pub(super) fn mib(&self) -> anyhow::Result<f64> {
        Ok(account::memory_alone(self.pid)?.private_kib as f64 / 1024.0)
    }

    /// Processor time so far, in seconds.
    ///
    /// # Errors
    /// When the process is gone.
    pub(super) fn cpu_s(&self) -> anyhow::Result<f64> {
        Ok(account::cpu_ns_alone(self.pid)? as f64 / 1e9)
    }

    /// What it has been sent.
    ///
    /// # Errors
    /// When it does not answer.
    pub(super) fn sent(&self) -> anyhow::Result<Sent> {
        let text = self.stats("cluster_manager")?;
        Ok(Sent {
            cds: counter(&text, "cluster_manager.cds.update_success"),
            clusters: counter(&text, "cluster_manager.active_clusters"),
        })
    }

    /// Requests that it has sent to gateways.
    ///
    /// # Errors
    /// When it does not answer.
    pub(super) fn by_gateway(&self) -> anyhow::Result<f64> {
        let name = "cluster.heddle-gateway.upstream_rq_total";
        Ok(counter(&self.stats(name)?, name))
    }

    /// Gateways that it knows.
    ///
    /// # Errors
    /// When it does not answer.
    pub(super) fn gateways(&self) -> anyhow::Result<f64> {
        let name = "cluster.heddle-gateway.membership_total";
        Ok(counter(&self.stats(name)?, name))
    }

    fn stats(&self, filter: &str) -> anyhow::Result<String> {
        let path = format!("/stats?filter={filter}");
        within(&self.network, || ask::get(ADMIN, &path))
    }
}

fn counter(text: &str, name: &str) -> f64 {
    let mut lines = text.lines().filter_map(|line| line.split_once(": "));
    let found = lines.find(|(known, _)| *known == name);
    found
        .and_then(|(_, value)| value.trim().parse().ok())
        .unwrap_or_default()
}

/// Runs something in a network namespace, on a thread of its own.
///
/// # Errors
/// When the namespace cannot be entered, or those of the work.
pub(super) fn within<T: Send>(
    network: &Path,
    work: impl FnOnce() -> anyhow::Result<T> + Send,
) -> anyhow::Result<T> {
    thread::scope(|scope| {
        let inside = scope.spawn(|| {
            let file = File::open(network).with_context(|| network.display().to_string())?;
            move_into_link_name_space(file.as_fd(), Some(LinkNameSpaceType::Network))?;
            work()
        });
        inside
            .join()
            .unwrap_or_else(|_| anyhow::bail!("the work within a pod has panicked"))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_counter_is_found_by_its_whole_name() {
        let text =
            "cluster_manager.cds.update_success_rate: 9\ncluster_manager.cds.update_success: 17\n";
        assert!((counter(text, "cluster_manager.cds.update_success") - 17.0).abs() < 1e-9);
        assert!(counter(text, "cluster_manager.cds").abs() < 1e-9);
    }
}
