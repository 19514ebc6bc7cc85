//! The settings of an authority: lifetimes.

use std::fmt;
use std::time::Duration;

const MINUTE: u64 = 60;
const HOUR: u64 = 60 * MINUTE;
const DAY: u64 = 24 * HOUR;

/// The operator's choices for an authority. The defaults suit most meshes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct AuthoritySettings {
    /// How long a leaf is valid after it is issued: 5 minutes to 90 days, 24 hours by default. A node that cannot reach
    /// the authority for that long loses its identities.
    pub leaf_life: Duration,
    /// How far a leaf's validity begins in the past, for nodes whose clocks are behind: at most a day, one hour by
    /// default.
    pub backdate: Duration,
    /// How long a root that is made here is valid: 30 days to 30 years, 10 years by default.
    pub root_life: Duration,
}

impl Default for AuthoritySettings {
    fn default() -> Self {
        Self {
            leaf_life: Duration::from_secs(DAY),
            backdate: Duration::from_secs(HOUR),
            root_life: Duration::from_secs(3_652 * DAY),
        }
    }
}

/// A setting that is out of its bounds.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct OutOfBounds {
    what: &'static str,
    bounds: &'static str,
}

impl AuthoritySettings {
    /// # Errors
    /// [`OutOfBounds`] names the setting and its bounds.
    pub fn check(&self) -> Result<(), OutOfBounds> {
        let within = |life: Duration, from: u64, to: u64, what, bounds| match (from..=to)
            .contains(&life.as_secs())
        {
            true => Ok(()),
            false => Err(OutOfBounds { what, bounds }),
        };
        let leaf = (5 * MINUTE, 90 * DAY);
        let root = (30 * DAY, 30 * 366 * DAY);
        within(
            self.leaf_life,
            leaf.0,
            leaf.1,
            "the life of leaves",
            "5 minutes and 90 days",
        )?;
        within(
            self.backdate,
            0,
            DAY,
            "the backdating of leaves",
            "0 and 1 day",
        )?;
        within(
            self.root_life,
            root.0,
            root.1,
            "the life of a root",
            "30 days and 30 years",
        )
    }
}

impl fmt::Display for OutOfBounds {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} must be between {}", self.what, self.bounds)
    }
}

impl std::error::Error for OutOfBounds {}
