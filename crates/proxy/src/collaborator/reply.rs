//! Responses that the proxy makes itself, before they are written.

use crate::failure::{Failure, Reason};

/// A response that the proxy makes itself.
pub(super) enum Reply {
    Failure(Failure),
    /// The connection becomes a tunnel to the Service's port that was called.
    Tunnel,
    /// A redirect to the Location in `scratch.value`.
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
