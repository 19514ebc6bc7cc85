//! Why streams between nodes break.

use super::Reason;

/// Why a stream broke, and what the other node knows of it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct StreamFailure {
    pub(crate) reason: Reason,
    /// The other node may have heard of it.
    pub(crate) was_sent: bool,
}

impl StreamFailure {
    /// A stream was never opened.
    pub(crate) fn unsent(reason: Reason) -> Self {
        let was_sent = false;
        StreamFailure { reason, was_sent }
    }

    /// A stream is over.
    pub(crate) fn over() -> Self {
        StreamFailure {
            reason: Reason::UpstreamReset,
            was_sent: true,
        }
    }

    /// What it means for a request. Whatever the reason, of what was never sent the other end has seen nothing.
    pub(crate) fn of_request(self) -> Reason {
        let StreamFailure { reason, was_sent } = self;
        match (reason, was_sent) {
            (Reason::LinkLost | Reason::UpstreamReset, false) => Reason::NodeConnectFailed,
            // A node that refuses has done nothing; but what it heard before that is not known.
            (
                Reason::ConnectFailed
                | Reason::ConnectTimeout
                | Reason::NodeConnectFailed
                | Reason::NodeConnectTimeout
                | Reason::PeerRefused,
                true,
            ) => Reason::LinkLost,
            _ => reason,
        }
    }
}
