//! Answers of our own, before they are written.

use crate::failure::{Failure, Reason};

/// An answer of our own.
pub(super) enum Reply {
    Failure(Failure),
    /// A redirect to what stands in `scratch.value`.
    Redirect {
        status: u16,
    },
}

impl From<Failure> for Reply {
    fn from(failure: Failure) -> Self {
        Reply::Failure(failure)
    }
}

impl From<Reason> for Reply {
    fn from(reason: Reason) -> Self {
        Reply::Failure(reason.into())
    }
}
