//! Objects that are refused by themselves.

use std::fmt;

use serde::{Deserialize, Serialize};

use super::Origin;
use crate::printable;

/// An object that is not in force as it is written. The problems of the report say why.
///
/// Shown as `origin: object: what is in force`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Refused {
    /// The object, as `Kind namespace/name`.
    pub object: String,
    /// Where it is written.
    pub origin: Origin,
    /// What is in force instead.
    pub in_force: InForce,
}

/// What is in force instead of an object that is refused.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum InForce {
    /// Its last version without a fault.
    LastGood,
    /// Something that opens nothing: a policy denies every call to what it selects, a route answers 500, a Namespace is
    /// strict.
    Closed,
    /// Nothing.
    Nothing,
}

impl InForce {
    /// All of them.
    pub const ALL: [InForce; 3] = [InForce::LastGood, InForce::Closed, InForce::Nothing];

    /// As in labels of metrics.
    pub fn as_str(self) -> &'static str {
        match self {
            InForce::LastGood => "last-good",
            InForce::Closed => "closed",
            InForce::Nothing => "nothing",
        }
    }

    /// As in a sentence about this object, which begins with its kind.
    pub fn told(self, object: &str) -> &'static str {
        let kind = object.split(' ').next().unwrap_or_default();
        match (self, kind) {
            (InForce::LastGood, _) => "refused: its last good version stays in force",
            (InForce::Nothing, _) => "refused, and left out",
            (InForce::Closed, "HTTPRoute") => "refused, and closed: its requests are answered 500",
            (InForce::Closed, "Namespace") => "refused, and closed: its mode is strict",
            (InForce::Closed, "ServiceAccount") => "refused: it exists without its annotations",
            (InForce::Closed, "LocalWorkload") => {
                "refused, and left out: nothing is called at its addresses"
            }
            (InForce::Closed, "unreadable") => {
                "refused, and closed: every call to these namespaces is denied"
            }
            (InForce::Closed, _) => "refused, and closed: every call to what it selects is denied",
        }
    }
}

/// One line, whatever characters files and their names contain.
impl fmt::Display for Refused {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Refused {
            object,
            origin,
            in_force,
        } = self;
        let line = format!("{origin}: {object}: {}", in_force.told(object));
        f.write_str(&printable(&line))
    }
}
