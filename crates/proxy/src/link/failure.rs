//! Codes on the wire, and the reasons that they stand for.

use heddle_wire::link::{Code, NoStream};

use crate::failure::{Reason, StreamFailure};

/// Why a stream broke, as the other end has said.
pub(super) fn said(code: Code) -> StreamFailure {
    StreamFailure {
        reason: reason(code),
        was_sent: code != Code::REFUSED && code != Code::GOING_AWAY,
    }
}

/// What a code of the other end means here.
fn reason(code: Code) -> Reason {
    let known = CODES.iter().find(|(known, _)| *known == code);
    known.map_or(Reason::UpstreamReset, |(_, reason)| *reason)
}

/// What the other end is told about a reason.
pub(super) fn code_of(reason: Reason) -> Code {
    let known = CODES.iter().find(|(_, known)| *known == reason);
    known.map_or(Code::CANCELLED, |(code, _)| *code)
}

/// Codes of the protocol and the reasons that they stand for.
const CODES: &[(Code, Reason)] = &[
    // Of these two nothing was done: the next try finds another link.
    (Code::REFUSED, Reason::NodeConnectFailed),
    (Code::GOING_AWAY, Reason::NodeConnectFailed),
    (Code::OVERLOAD, Reason::UpstreamOverflow),
    (Code::MALFORMED, Reason::UpstreamMalformed),
    (Code::TIMEOUT, Reason::ResponseTimeout),
    (Code::EXPIRED, Reason::IdentityRevoked),
    (Code::CUT, Reason::UpstreamReset),
    (Code::INTERNAL, Reason::UpstreamReset),
];

/// Why no stream can be opened.
pub(super) fn cannot_open(why: NoStream) -> Reason {
    match why {
        NoStream::TooMany | NoStream::Full => Reason::UpstreamOverflow,
        NoStream::TooLong => Reason::Malformed,
        NoStream::GoingAway | NoStream::Over => Reason::NodeConnectFailed,
    }
}
