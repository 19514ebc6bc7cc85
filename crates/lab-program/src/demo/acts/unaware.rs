//! A program in a pod sees names and addresses of Services, and no sign of a mesh.

use std::io::ErrorKind;
use std::net::IpAddr;
use std::process::{Command, Stdio};

use anyhow::{Context, bail, ensure};

use crate::demo::mesh::{Mesh, NODES};
use crate::demo::{FRONT, SHOPPER};

/// Output of curl: the status, and the address of the peer from getpeername(2).
const FORMAT: &str = "%{http_code} %{remote_ip}";
/// Environment variables for proxies. curl runs without them, so it cannot use a proxy of the user.
const PROXIES: [&str; 6] = [
    "http_proxy",
    "HTTP_PROXY",
    "https_proxy",
    "HTTPS_PROXY",
    "all_proxy",
    "ALL_PROXY",
];

/// Has curl request a page by name, in the shopper's pod, and prints the peer that it saw.
///
/// # Errors curl gets no page, or its peer is not an address of the Service.
pub(in crate::demo) async fn unaware(mesh: &Mesh) -> anyhow::Result<()> {
    let Some(pods) = mesh.pods() else {
        return Ok(());
    };
    let url = format!("{}/products/1", mesh.url(NODES[0], SHOPPER, FRONT).await?);
    let mut curl = pods.command(SHOPPER, "curl")?;
    forget_proxies(&mut curl);
    curl.args(["--silent", "--show-error", "--max-time", "5"])
        .args(["--output", "/dev/null", "--write-out", FORMAT])
        .arg(&url)
        .stdin(Stdio::null());
    let output = match curl.output() {
        Err(error) if error.kind() == ErrorKind::NotFound => {
            println!(
                "curl is not installed; it would show that an unmodified program works in the mesh."
            );
            return Ok(());
        }
        output => output.context("cannot run curl in the shopper's pod")?,
    };
    let said = String::from_utf8_lossy(&output.stdout);
    if !output.status.success() {
        let error = String::from_utf8_lossy(&output.stderr);
        bail!("curl {url} in the shopper's pod: {}", error.trim());
    }
    let (status, peer) = said.split_once(' ').unwrap_or((said.as_ref(), ""));
    ensure!(
        status == "200",
        "curl {url} in the shopper's pod got {status}"
    );
    let peer: IpAddr = peer.parse().context("curl printed no peer address")?;
    ensure!(
        pods.addresses_of(FRONT).contains(&peer),
        "curl in the shopper's pod is connected with {peer}, which is not {FRONT}'s address"
    );
    println!(
        "In the shopper's pod, without proxy settings: curl {url} got {status}. The program sees the Service's own \
         address, {peer}, not a proxy's.\n"
    );
    Ok(())
}

/// Removes the proxy settings of the user from a program's environment.
pub(in crate::demo) fn forget_proxies(command: &mut Command) {
    for name in PROXIES {
        command.env_remove(name);
    }
}
