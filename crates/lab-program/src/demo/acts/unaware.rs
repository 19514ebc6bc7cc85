//! What a program in a pod sees: names and addresses of Services, and nothing of a mesh.

use std::io::ErrorKind;
use std::net::IpAddr;
use std::process::{Command, Stdio};

use anyhow::{Context, bail, ensure};

use crate::demo::mesh::{Mesh, NODES};
use crate::demo::{FRONT, SHOPPER};

/// What curl says: the status, and the peer that getpeername(2) names.
const FORMAT: &str = "%{http_code} %{remote_ip}";
/// Settings by which programs are told of proxies; none is passed on.
const PROXIES: [&str; 6] = [
    "http_proxy",
    "HTTP_PROXY",
    "https_proxy",
    "HTTPS_PROXY",
    "all_proxy",
    "ALL_PROXY",
];

/// Has curl ask for a page by name, in the shopper's pod, and says what it saw.
///
/// # Errors
/// No page came, or curl sees something else than the Service.
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
                "There is no curl here, which would show that an unmodified program is carried."
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
        "curl {url} in the shopper's pod was told {status}"
    );
    let peer: IpAddr = peer.parse().context("curl names no peer")?;
    ensure!(
        pods.addresses_of(FRONT).contains(&peer),
        "curl in the shopper's pod is connected with {peer}, which is not {FRONT}'s address"
    );
    println!(
        "In the shopper's pod, with no setting of a proxy: curl {url} was told {status} by {peer}, which is the \
         Service's address, getpeername says.\n"
    );
    Ok(())
}

/// Has a program not know of any proxy of the machine's user.
pub(in crate::demo) fn forget_proxies(command: &mut Command) {
    for name in PROXIES {
        command.env_remove(name);
    }
}
