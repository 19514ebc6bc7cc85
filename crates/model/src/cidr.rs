//! Address ranges.

use std::fmt;
use std::net::IpAddr;
use std::str::FromStr;

use serde::{Deserialize, Serialize};

#[cfg(test)]
mod tests;

/// Limit of the address ranges of a mesh.
pub const MAX_ADDRESS_RANGES: usize = 64;

/// An address range in CIDR notation (RFC 4632).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct Cidr {
    network: IpAddr,
    prefix: u8,
}

impl Cidr {
    /// The range with a prefix of `prefix` bits; `None` when the prefix is longer than the address, or the address
    /// has bits set beyond it, or is an IPv4-mapped IPv6 address: such an address counts as IPv4, so none would be in it.
    pub fn new(network: IpAddr, prefix: u8) -> Option<Self> {
        let fits = match network {
            IpAddr::V4(address) => {
                let host = u32::MAX.checked_shr(prefix.into()).unwrap_or(0);
                prefix <= 32 && u32::from(address) & host == 0
            }
            IpAddr::V6(address) => {
                let host = u128::MAX.checked_shr(prefix.into()).unwrap_or(0);
                let is_mapped = prefix >= 96 && address.to_ipv4_mapped().is_some();
                prefix <= 128 && u128::from(address) & host == 0 && !is_mapped
            }
        };
        fits.then_some(Cidr { network, prefix })
    }

    /// Whether the range contains an address. An IPv4-mapped IPv6 address counts as IPv4.
    pub fn contains(self, address: IpAddr) -> bool {
        let shared = match (self.network, address.to_canonical()) {
            (IpAddr::V4(network), IpAddr::V4(address)) => {
                (u32::from(network) ^ u32::from(address)).leading_zeros()
            }
            (IpAddr::V6(network), IpAddr::V6(address)) => {
                (u128::from(network) ^ u128::from(address)).leading_zeros()
            }
            _ => return false,
        };
        shared >= u32::from(self.prefix)
    }

    /// The first address.
    pub fn network(self) -> IpAddr {
        self.network
    }

    /// Length of the prefix in bits.
    pub fn prefix(self) -> u8 {
        self.prefix
    }
}

impl FromStr for Cidr {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let wrong = || format!("{text:?} is no network: write one such as 10.0.0.0/8 or fd00::/8");
        let (network, prefix) = text.split_once('/').ok_or_else(wrong)?;
        let network: IpAddr = network.parse().map_err(|_| wrong())?;
        let prefix = prefix.parse().map_err(|_| wrong())?;
        Self::new(network, prefix).ok_or_else(|| {
            format!(
                "{text:?} is no network: the address has bits beyond the prefix, the prefix is too long, or it is an \
                 IPv4 network in its IPv6-mapped form"
            )
        })
    }
}

impl fmt::Display for Cidr {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.network, self.prefix)
    }
}

impl TryFrom<String> for Cidr {
    type Error = String;

    fn try_from(text: String) -> Result<Self, String> {
        text.parse()
    }
}

impl From<Cidr> for String {
    fn from(cidr: Cidr) -> String {
        cidr.to_string()
    }
}
