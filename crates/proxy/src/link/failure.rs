//! Translates the codes of the link protocol to reasons and back.

use heddle_wire::link::{Code, NoStream};

use crate::failure::{Reason, StreamFailure};

/// The failure of a stream that the other end has reset.
pub(super) fn said(code: Code) -> StreamFailure {
    StreamFailure {
        reason: reason(code),
        was_sent: code != Code::REFUSED && code != Code::GOING_AWAY,
    }
}

fn reason(code: Code) -> Reason {
    let known = CODES.iter().find(|(known, _)| *known == code);
    known.map_or(Reason::UpstreamReset, |(_, reason)| *reason)
}

/// The code that is sent to the other end for a reason.
pub(super) fn code_of(reason: Reason) -> Code {
    let known = CODES.iter().find(|(_, known)| *known == reason);
    known.map_or(Code::CANCELLED, |(code, _)| *code)
}

const CODES: &[(Code, Reason)] = &[
    // The request was not processed in these two cases: the retry uses another link.
    (Code::REFUSED, Reason::NodeConnectFailed),
    (Code::GOING_AWAY, Reason::NodeConnectFailed),
    (Code::OVERLOAD, Reason::UpstreamOverflow),
    (Code::MALFORMED, Reason::UpstreamMalformed),
    (Code::TIMEOUT, Reason::ResponseTimeout),
    (Code::EXPIRED, Reason::IdentityRevoked),
    (Code::CUT, Reason::UpstreamReset),
    (Code::INTERNAL, Reason::UpstreamReset),
];

/// The reason for a stream that cannot be opened.
pub(super) fn cannot_open(why: NoStream) -> Reason {
    match why {
        NoStream::TooMany | NoStream::Full => Reason::UpstreamOverflow,
        NoStream::TooLong => Reason::Malformed,
        NoStream::GoingAway | NoStream::Over => Reason::NodeConnectFailed,
    }
}
