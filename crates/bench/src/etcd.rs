//! An etcd of the experiment's own, with one member.

use std::fs;
use std::net::SocketAddr;
use std::path::Path;
use std::time::Duration;

use super::ask;
use super::child::{Child, Confinement, words};
use super::nodes::free_address;

/// How long etcd may take until it answers.
const ETCD_WITHIN: Duration = Duration::from_secs(20);

/// Starts an etcd that keeps its data in `dir`, and waits until it answers; returns its client address.
///
/// # Errors
/// When it does not start; the end of its log is quoted.
pub(super) fn start(
    program: &Path,
    place: &Confinement,
    dir: &Path,
) -> anyhow::Result<(Child, SocketAddr)> {
    let (client, peer) = (free_address()?, free_address()?);
    let data = dir.join("etcd");
    fs::create_dir(&data)?;
    // Debian's etcd refuses to run on arm64 without that.
    let mut command = words(["env", "ETCD_UNSUPPORTED_ARCH=arm64"]);
    command.push(program.into());
    command.extend(words(["--data-dir".as_ref(), data.as_os_str()]));
    let urls = [format!("http://{client}"), format!("http://{peer}")];
    for (flags, url) in [
        (
            ["--listen-client-urls", "--advertise-client-urls"],
            &urls[0],
        ),
        (
            ["--listen-peer-urls", "--initial-advertise-peer-urls"],
            &urls[1],
        ),
    ] {
        command.extend(flags.iter().flat_map(|flag| words([*flag, url])));
    }
    command.extend(words([
        "--initial-cluster",
        &format!("default={}", urls[1]),
    ]));
    let mut etcd = Child::start("etcd", place, &command, &dir.join("etcd.log"), false)?;
    etcd.wait_until(ETCD_WITHIN, || {
        let health = ask::get(client, "/health").ok()?;
        health.contains("true").then_some(())
    })?;
    Ok((etcd, client))
}
