//! The setting for the address of metrics.

use std::fmt;
use std::net::SocketAddr;
use std::str::FromStr;

use serde::{Deserialize, Deserializer, Serialize, Serializer, de};

/// TCP address of metrics, if they are served.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Metrics {
    /// Served at this address.
    At(SocketAddr),
    /// Not served over TCP.
    None,
}

impl Default for Metrics {
    fn default() -> Self {
        Metrics::At(SocketAddr::from(([127, 0, 0, 1], 15_020)))
    }
}

impl Metrics {
    /// Whether metrics and a listener at this address exclude each other.
    pub(super) fn is_in_the_way_of(self, listen: SocketAddr) -> bool {
        let Metrics::At(at) = self else {
            return false;
        };
        let is_any = at.ip().is_unspecified() || listen.ip().is_unspecified();
        let is_same_ip = at.ip() == listen.ip() || is_any && at.is_ipv4() == listen.is_ipv4();
        // Port 0 means any free port.
        is_same_ip && at.port() == listen.port() && at.port() != 0
    }
}

impl FromStr for Metrics {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        match text {
            "none" => Ok(Metrics::None),
            text => text.parse().map(Metrics::At).map_err(|_| {
                format!(
                    "`{text}` is no address, expected ADDRESS:PORT such as 127.0.0.1:15020, or none"
                )
            }),
        }
    }
}

impl fmt::Display for Metrics {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Metrics::At(address) => address.fmt(f),
            Metrics::None => f.write_str("none"),
        }
    }
}

impl<'de> Deserialize<'de> for Metrics {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        String::deserialize(deserializer)?
            .parse()
            .map_err(de::Error::custom)
    }
}

impl Serialize for Metrics {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn two_listeners_do_not_share_an_address_and_a_port() {
        for (metrics, listen, is_in_the_way) in [
            ("127.0.0.1:7", "127.0.0.1:7", true),
            ("127.0.0.1:7", "0.0.0.0:7", true),
            ("0.0.0.0:7", "10.0.0.1:7", true),
            ("[::]:7", "[::1]:7", true),
            ("127.0.0.1:7", "127.0.0.1:8", false),
            ("127.0.0.1:7", "127.0.0.2:7", false),
            ("127.0.0.1:0", "127.0.0.1:0", false),
            // Both work only if the kernel's setting makes IPv6 sockets IPv6-only.
            ("127.0.0.1:7", "[::]:7", false),
            ("none", "127.0.0.1:7", false),
        ] {
            let at: Metrics = metrics.parse().expect("metrics");
            let found = at.is_in_the_way_of(listen.parse().expect("an address"));
            assert_eq!(found, is_in_the_way, "{metrics} {listen}");
        }
    }
}
