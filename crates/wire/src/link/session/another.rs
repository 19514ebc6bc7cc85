//! A server asks the client for another link, because this link's end is overloaded or going away.
//!
//! ```text
//!   server                                   client
//!     ask_for ── GOAWAY, serial 2²⁴ − 1 ──────▶ asked: opens another link …
//!     takes what comes  ◀── streams ──────────   … and goes on here until that one is there
//!     Instead: over when nothing is open  ◀────   then begins nothing more here
//!     Beside:  goes on  ◀──────────────────────   then has streams on both
//! ```
//!
//! Unlike [`go_away`](Session::go_away) it refuses nothing, so no stream has to be retried. A client without support
//! for it reads a plain GOAWAY and opens no more streams, which is right for [`Another::Instead`].

use super::super::frame::{Code, FrameKind, Head, Serial};
use super::{End, Session};

/// The highest serial: in a server's GOAWAY it means that streams are still accepted.
const TAKES_ALL: u32 = Serial::MAX;

/// The purpose of another link.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Another {
    /// It replaces this one.
    Instead,
    /// It is used beside this one: both are kept.
    Beside,
}

impl Another {
    fn code(self) -> Code {
        match self {
            Another::Instead => Code::GOING_AWAY,
            Another::Beside => Code::BUSY,
        }
    }

    fn of(code: Code) -> Self {
        match code {
            Code::BUSY => Another::Beside,
            _ => Another::Instead,
        }
    }
}

impl Session {
    /// The client end of an owner that keeps a second link when asked to.
    #[must_use]
    pub fn keeping_two(mut self) -> Self {
        self.beside = self.end == End::Client;
        self
    }

    /// The client end of an owner all of whose streams are for offline callers, if `is_offline`.
    #[must_use]
    pub fn for_offline_callers(mut self, is_offline: bool) -> Self {
        self.offline = is_offline && self.end == End::Client;
        self
    }

    /// At the server end: whether the client keeps a second link when asked to.
    #[must_use]
    pub fn may_ask_for_two(&self) -> bool {
        self.end == End::Server && self.beside
    }

    /// Asks the client for another link, at the server end. A client that keeps only one link is not asked for a second
    /// one.
    pub fn ask_for(&mut self, what: Another) {
        if self.end == End::Server && (what == Another::Instead || self.beside) {
            self.asks_for = Some(what);
            self.pending.go_away = true;
        }
    }

    /// What a received GOAWAY asks for, if it is a request for another link.
    pub(super) fn asked_by(&self, farewell: &Head) -> Option<Another> {
        let asks = self.end == End::Client && farewell.number == TAKES_ALL;
        asks.then(|| Another::of(farewell.code))
    }

    /// The GOAWAY to send. If this end both asks for a link and goes away, going away takes precedence.
    pub(super) fn farewell(&self) -> Option<Head> {
        // The highest serial would mean a request for another link.
        let last = self.last.map_or(0, Serial::number).min(TAKES_ALL - 1);
        let leaving = self.leaving.map(|code| (code, last));
        let asks = self.asks_for.map(|what| (what.code(), TAKES_ALL));
        let (code, number) = leaving.or(asks)?;
        Some(Head {
            code,
            ..Head::new(FrameKind::GoAway, number)
        })
    }
}
