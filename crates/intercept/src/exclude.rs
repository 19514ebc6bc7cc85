//! Exclusions: traffic of a pod that is not intercepted.

use std::fmt;
use std::str::FromStr;

use heddle_model::Cidr;
use serde::{Deserialize, Serialize};

#[cfg(test)]
mod tests;

/// Limit of ranges of each kind, because the BPF programs compare with each of them.
pub const MAX_EXCLUDED: usize = 16;

/// Traffic of a pod that is not intercepted. At most [`MAX_EXCLUDED`] ranges of each kind.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Exclude {
    /// Listening ports of the pod.
    pub inbound_ports: Vec<PortRange>,
    /// Destination ports of the pod's connections, at any address.
    pub outbound_ports: Vec<PortRange>,
    /// Destination networks of the pod's connections.
    pub outbound_networks: Vec<Cidr>,
}

impl Exclude {
    /// Checks that no kind has more than [`MAX_EXCLUDED`] ranges.
    ///
    /// # Errors
    /// A message that says which kind has too many.
    pub fn check(&self) -> Result<(), String> {
        for (what, count) in [
            ("ports of its own", self.inbound_ports.len()),
            ("ports that it dials", self.outbound_ports.len()),
            ("networks that it dials", self.outbound_networks.len()),
        ] {
            if count > MAX_EXCLUDED {
                return Err(format!(
                    "{count} ranges of {what} are excluded, the most is {MAX_EXCLUDED}"
                ));
            }
        }
        Ok(())
    }
}

/// A range of ports, both ends included.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct PortRange {
    first: u16,
    last: u16,
}

impl PortRange {
    /// The ports from `first` to `last`; `None` when `last` is below `first`, or `first` is 0.
    pub fn new(first: u16, last: u16) -> Option<Self> {
        (first > 0 && first <= last).then_some(PortRange { first, last })
    }

    /// A range of one port; `None` for port 0.
    pub fn one(port: u16) -> Option<Self> {
        Self::new(port, port)
    }

    /// The lowest port.
    pub fn first(self) -> u16 {
        self.first
    }

    /// The highest port.
    pub fn last(self) -> u16 {
        self.last
    }
}

impl FromStr for PortRange {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let (first, last) = text.split_once('-').unwrap_or((text, text));
        let range = match (first.parse(), last.parse()) {
            (Ok(first), Ok(last)) => Self::new(first, last),
            _ => None,
        };
        range.ok_or_else(|| {
            format!("{text:?} is no port: write one such as 22, or a range such as 8000-8010")
        })
    }
}

impl fmt::Display for PortRange {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.first == self.last {
            true => self.first.fmt(f),
            false => write!(f, "{}-{}", self.first, self.last),
        }
    }
}

impl TryFrom<String> for PortRange {
    type Error = String;

    fn try_from(text: String) -> Result<Self, String> {
        text.parse()
    }
}

impl From<PortRange> for String {
    fn from(range: PortRange) -> String {
        range.to_string()
    }
}
