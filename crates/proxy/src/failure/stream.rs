//! Failures of streams between nodes.

use super::Reason;

/// Why a stream failed, and whether the other node may have seen it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct StreamFailure {
    pub(crate) reason: Reason,
    /// Whether the other node may have received something of the stream.
    pub(crate) was_sent: bool,
}

impl StreamFailure {
    /// A failure of a stream that was never opened.
    pub(crate) fn unsent(reason: Reason) -> Self {
        let was_sent = false;
        StreamFailure { reason, was_sent }
    }

    /// The failure of a stream that has been reset.
    pub(crate) fn over() -> Self {
        StreamFailure {
            reason: Reason::UpstreamReset,
            was_sent: true,
        }
    }

    /// The reason for the request on the stream. If nothing was sent, the other node has not seen the request, whatever
    /// the reason.
    pub(crate) fn of_request(self) -> Reason {
        let StreamFailure { reason, was_sent } = self;
        match (reason, was_sent) {
            (Reason::LinkLost | Reason::UpstreamReset, false) => Reason::NodeConnectFailed,
            // These reasons would allow a retry, but the node may already have processed what was sent before it
            // refused.
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
