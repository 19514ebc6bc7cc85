//! What is not as it was found.

use std::fmt;

use heddle_model::Class;
use serde::{Deserialize, Serialize};

use crate::cgroup::{ControlGroup, Knob, Value};

/// A knob of a group.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct Key {
    /// The group.
    pub group: ControlGroup,
    /// Its knob.
    pub knob: Knob,
}

impl fmt::Display for Key {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} of {}", self.knob, self.group)
    }
}

/// A knob that we changed.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Held {
    /// The pod for which it was changed.
    pub pod: String,
    /// Its class.
    pub class: Class,
    /// The reason.
    pub why: String,
    /// When it was first changed, in seconds since 1970.
    pub since_s: u64,
    /// Inode of the group's folder.
    pub inode: u64,
    /// The value that was found.
    pub original: Value,
    /// Values that may be there by our hand: the last one written, and the next one while it is being written.
    pub ours: Vec<Value>,
}
