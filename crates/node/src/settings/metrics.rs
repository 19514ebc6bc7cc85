//! Where metrics are served.

use std::fmt;
use std::net::SocketAddr;
use std::str::FromStr;

use serde::{Deserialize, Deserializer, Serialize, Serializer, de};

/// Where metrics are served over TCP, if at all.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Metrics {
    /// At this address.
    At(SocketAddr),
    /// Nowhere.
    None,
}

impl Default for Metrics {
    fn default() -> Self {
        Metrics::At(SocketAddr::from(([127, 0, 0, 1], 15_020)))
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
