//! The acts: what is done to the mesh while the shopper goes on, and what was seen of it.

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

/// A workload that calls what it should not.
pub(super) const INTRUDER: &str = "bookstore/intruder";
/// A workload that comes late.
pub(super) const READER: &str = "bookstore/reader";
