//! What is not as it was found in the network.

use std::fmt;

use heddle_model::Class;
use serde::{Deserialize, Serialize};

use super::kernel::{Hook, Link, Qdisc};
use crate::arbiter::journal::Entry;

/// Something of an interface that is changed as a whole.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct Key {
    /// The network namespace, by its inode.
    pub namespace: u64,
    /// The interface.
    pub link: Link,
    /// What of it.
    pub part: Part,
}

/// What is changed of an interface, in the order in which it is put back.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Part {
    /// The filter that marks what a pod sends.
    Marker,
    /// The hook at which that filter is.
    Clsact,
    /// The queueing discipline of what is sent.
    Root,
}

impl Part {
    /// As in output.
    pub fn as_str(self) -> &'static str {
        match self {
            Part::Marker => "mark",
            Part::Clsact => "clsact",
            Part::Root => "qdisc",
        }
    }

    /// Where it is.
    pub(super) fn hook(self) -> Hook {
        match self {
            Part::Root => Hook::Root,
            Part::Marker | Part::Clsact => Hook::Ingress,
        }
    }
}

impl fmt::Display for Key {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} of {}", self.part.as_str(), self.link)
    }
}

impl Entry for Key {
    const FILE: &'static str = "network";
}

/// A part that we changed.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Held {
    /// The pod for which it was changed; the interface itself for one of the node.
    pub pod: String,
    /// The class for which it was changed.
    pub class: Class,
    /// The reason.
    pub why: String,
    /// When it was changed, in seconds since 1970.
    pub since_s: u64,
    /// What was there.
    pub original: Option<Qdisc>,
    /// What is there now, in words.
    pub now: String,
}

impl Held {
    /// What was there, in words.
    pub fn original(&self) -> String {
        match &self.original {
            Some(qdisc) => qdisc.to_string(),
            None => "none".to_owned(),
        }
    }
}
