//! A lock: only one demo runs on a machine, since its services have fixed addresses.

use std::io;
use std::net::{SocketAddr as Address, TcpListener};
use std::os::linux::net::SocketAddrExt;
use std::os::unix::net::{SocketAddr, UnixListener};

use anyhow::{Context, bail};

#[cfg(test)]
mod tests;

/// An abstract socket name: it belongs to the network namespace, like the addresses. The kernel frees it when this
/// process ends, even after a crash.
const NAME: &[u8] = b"heddle-demo";

/// Released when dropped.
#[derive(Debug)]
pub(super) struct DemoLock {
    _name: UnixListener,
}

impl DemoLock {
    /// Takes the lock for a demo whose services will listen on `addresses`.
    ///
    /// # Errors
    /// Another demo has the lock, or another program has one of the addresses.
    pub(super) fn take(addresses: &[Address]) -> anyhow::Result<Self> {
        Self::take_as(NAME, addresses)
    }

    fn take_as(name: &[u8], addresses: &[Address]) -> anyhow::Result<Self> {
        let at = SocketAddr::from_abstract_name(name)?;
        let name = match UnixListener::bind_addr(&at) {
            Err(error) if error.kind() == io::ErrorKind::AddrInUse => {
                bail!("another demo runs on this machine: wait until it has ended, or stop it")
            }
            bound => bound.context("cannot see whether another demo runs")?,
        };
        for address in addresses {
            match TcpListener::bind(address) {
                Err(error) if error.kind() == io::ErrorKind::AddrInUse => bail!(
                    "{address} is taken: another demo, or the bookstore by hand, seems to run on \
                     this machine; wait until it has ended, or stop it"
                ),
                // Other errors are reported by the service itself when it binds.
                _ => {}
            }
        }
        Ok(Self { _name: name })
    }
}
