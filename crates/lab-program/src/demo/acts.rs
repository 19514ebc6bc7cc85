//! The acts: each changes the mesh while the shopper continues, and collects the outcome.

mod kill;
mod policy;
mod root;
mod split;
mod unaware;

pub(super) use kill::{Killed, LIMIT as MISSED_LIMIT, kill};
#[cfg(test)]
pub(super) use policy::Turned;
pub(super) use policy::{Guarded, guard};
pub(super) use root::{Rotated, identities, rotate};
pub(super) use split::share;
pub(super) use unaware::unaware;

/// A workload that the policy of the second act refuses.
pub(super) const INTRUDER: &str = "bookstore/intruder";
/// A workload that is added after the root was replaced.
pub(super) const READER: &str = "bookstore/reader";
