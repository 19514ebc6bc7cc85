//! The demo's place on this machine: there is one, since its services have fixed addresses.

use std::io;
use std::net::{SocketAddr as Address, TcpListener};
use std::os::linux::net::SocketAddrExt;
use std::os::unix::net::{SocketAddr, UnixListener};

use anyhow::{Context, bail};

#[cfg(test)]
mod tests;

/// A name in the network namespace, which is what the addresses belong to as well. It is free again
/// when we end, however that happens.
const NAME: &[u8] = b"heddle-demo";

/// Our claim; given up when dropped.
#[derive(Debug)]
pub(super) struct DemoLock {
    _name: UnixListener,
}

impl DemoLock {
    /// Takes the place for a demo whose services will listen at `addresses`.
    ///
    /// # Errors
    /// Another demo has it, or another program one of the addresses.
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
                // Whatever else is wrong the service itself will say.
                _ => {}
            }
        }
        Ok(Self { _name: name })
    }
}
