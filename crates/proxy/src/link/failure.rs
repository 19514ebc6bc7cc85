//! Codes on the wire, and the reasons that they stand for.

use std::fmt;
use std::io;

use heddle_wire::link::{Code, NoStream};

use crate::failure::Reason;

/// Why a stream broke, and what the other node knows of it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct StreamFailure {
    pub(crate) reason: Reason,
    /// The other node may have heard of it.
    pub(crate) was_sent: bool,
}

impl StreamFailure {
    /// The other end has said so.
    pub(super) fn by(code: Code) -> Self {
        StreamFailure {
            reason: reason(code),
            was_sent: code != Code::REFUSED && code != Code::GOING_AWAY,
        }
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
    (Code::REFUSED, Reason::ConnectFailed),
    (Code::GOING_AWAY, Reason::ConnectFailed),
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
        NoStream::GoingAway | NoStream::Over => Reason::ConnectFailed,
    }
}

/// An error of a stream that carries why.
pub(crate) fn broken(failed: StreamFailure) -> io::Error {
    io::Error::new(io::ErrorKind::ConnectionReset, StreamError(failed))
}

/// Why a stream broke that was never opened.
pub(super) fn unopened(reason: Reason) -> StreamFailure {
    let was_sent = false;
    StreamFailure { reason, was_sent }
}

/// An error of such a stream.
pub(crate) fn unsent(reason: Reason) -> io::Error {
    broken(unopened(reason))
}

/// An error of a stream that is over.
pub(crate) fn over() -> io::Error {
    broken(StreamFailure {
        reason: Reason::UpstreamReset,
        was_sent: true,
    })
}

/// Why a stream of a link broke, if it is that what an error says. Whatever the reason, of what was never sent
/// the other end has seen nothing.
pub(crate) fn reason_of(error: &io::Error) -> Option<Reason> {
    let StreamError(failed) = error.get_ref()?.downcast_ref()?;
    let StreamFailure { reason, was_sent } = *failed;
    Some(match (reason, was_sent) {
        (Reason::LinkLost | Reason::UpstreamReset, false) => Reason::ConnectFailed,
        // A node that refuses has done nothing; but what it heard before that is not known.
        (Reason::ConnectFailed | Reason::ConnectTimeout | Reason::PeerRefused, true) => {
            Reason::LinkLost
        }
        _ => reason,
    })
}

#[derive(Debug)]
struct StreamError(StreamFailure);

impl fmt::Display for StreamError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "the stream broke: {}", self.0.reason.code())
    }
}

impl std::error::Error for StreamError {}
