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

    /// As in a sentence about an object.
    pub fn told(self) -> &'static str {
        match self {
            InForce::LastGood => "refused: its last good version stays in force",
            InForce::Closed => "refused, and closed: what it was to decide is denied",
            InForce::Nothing => "refused, and left out",
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
        let line = format!("{origin}: {object}: {}", in_force.told());
        f.write_str(&printable(&line))
    }
}
