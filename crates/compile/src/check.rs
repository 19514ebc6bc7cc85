//! Checks of single values: what the API server would refuse, or what cannot be served.
//!
//! Pure functions from text to a checked value or a [`Flaw`]. They know no objects.

mod address;
mod duration;
mod header;
mod path;
mod timestamp;

#[cfg(test)]
mod tests;

pub(crate) use address::{cluster_address, endpoint_address, hostname, port};
pub(crate) use duration::duration_ms;
pub(crate) use header::{Direction, edit_name, edit_value, match_name, match_value, policy_header};
pub(crate) use path::{exact_path, full_path, path_prefix, replacement_prefix};
pub(crate) use timestamp::timestamp;

/// The fault of a value, and its remedy.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Flaw {
    pub(crate) reason: String,
    pub(crate) remedy: String,
}

impl Flaw {
    pub(crate) fn new(reason: impl Into<String>, remedy: impl Into<String>) -> Self {
        Self {
            reason: reason.into(),
            remedy: remedy.into(),
        }
    }
}
