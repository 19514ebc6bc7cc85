//! A server asks the client for another link, since this one's end has too much to do, or is to end.
//!
//! ```text
//!   server                                   client
//!     ask_for ── GOAWAY, serial 2²⁴ − 1 ──────▶ asked: opens another link …
//!     takes what comes  ◀── streams ──────────   … and goes on here until that one is there
//!     Instead: over when nothing is open  ◀────   then begins nothing more here
//!     Beside:  goes on  ◀──────────────────────   then has streams on both
//! ```
//!
//! Unlike [`go_away`](Session::go_away) it refuses nothing: no stream has to be sent again. A client that knows nothing
//! of this takes it for a farewell and opens nothing more, which is right for [`Another::Instead`].

use super::super::frame::{Code, FrameKind, Head, Serial};
use super::{End, Session};

/// The last serial there is: in GOAWAY of a server it says that streams are taken as before.
const TAKES_ALL: u32 = Serial::MAX;

/// What for another link is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Another {
    /// In place of this one.
    Instead,
    /// Beside this one: both are kept.
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
    /// The end that calls, of an owner that keeps a link beside another when it is asked to.
    #[must_use]
    pub fn keeping_two(mut self) -> Self {
        self.beside = self.end == End::Client;
        self
    }

    /// At the server's end, whether the client keeps a link beside this one when it is asked to.
    #[must_use]
    pub fn may_ask_for_two(&self) -> bool {
        self.end == End::Server && self.beside
    }

    /// Asks the client for another link, at the server's end. A client that does not keep two is not asked
    /// for one beside this.
    pub fn ask_for(&mut self, what: Another) {
        if self.end == End::Server && (what == Another::Instead || self.beside) {
            self.asks_for = Some(what);
            self.pending.go_away = true;
        }
    }

    /// What a GOAWAY that came asks for, if it takes nothing away.
    pub(super) fn asked_by(&self, farewell: &Head) -> Option<Another> {
        let asks = self.end == End::Client && farewell.number == TAKES_ALL;
        asks.then(|| Another::of(farewell.code))
    }

    /// The GOAWAY that is to be said: of one that asks and one that is meant for good the latter.
    pub(super) fn farewell(&self) -> Option<Head> {
        // The very last serial would say something else.
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
