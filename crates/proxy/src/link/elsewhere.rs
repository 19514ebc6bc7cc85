//! Decides which callers are asked for another link, at the called end: a Worker that has too much to do, or is to end,
//! cannot hand a link over to another Worker.
//!
//! ```text
//!   fresh ──1 s──▶ ready ── too much to do ─▶ asked ──2 s──▶ resting ──▶ ready
//!                    └─ the Worker retires ─▶ asked ──2 s──▶ told to go: what comes from then on is refused
//! ```
//!
//! A caller that has complied closes the link once no stream is open on it. Long-lived flows keep it open.

use std::cell::Cell;
use std::collections::HashMap;
use std::rc::{Rc, Weak};

use foldhash::fast::RandomState;
use heddle_wire::link::{Another, Code};
use heddle_wire::preface::Kind;

use super::{Link, Links};
use crate::clock::Millis;
use crate::env::{Band, BandMember, Env, Part, Standing};

/// A new link is left alone for this long, because its load is not known yet. In milliseconds, like all times here.
const FRESH_MS: Millis = 1_000;
/// Time for the caller to comply.
const ANSWERED_MS: Millis = 2_000;
/// A caller that was asked for a link instead, and keeps this one for long-lived flows, is not asked again for this
/// long.
const INSTEAD_AGAIN_MS: Millis = 30_000;
/// A caller that was asked for an additional link may have closed that one after this time, and may be asked again.
const BESIDE_AGAIN_MS: Millis = 5_000;

/// Whether the caller of a link was asked for another one, and for which kind.
#[derive(Debug, Default)]
pub(super) struct Elsewhere {
    /// The tasks of the link.
    band: Option<Band>,
    begun: Millis,
    asked: Cell<Option<(Another, Millis)>>,
}

impl Elsewhere {
    pub(super) fn new(band: Band, begun: Millis) -> Self {
        Elsewhere {
            band: Some(band),
            begun,
            asked: Cell::new(None),
        }
    }

    /// The kind of work of a task that serves a stream, for the band's accounts.
    pub(super) fn member(&self, kind: Kind) -> Option<BandMember> {
        let part = match kind {
            Kind::Http => Part::Exchanges,
            Kind::Bytes => Part::Flow,
        };
        self.band.map(|band| BandMember { band, part })
    }

    /// If the caller was asked for a link instead: until when a retiring Worker waits for it to leave by itself.
    pub(super) fn waits_until(&self) -> Option<Millis> {
        match self.asked.get() {
            Some((Another::Instead, at)) => Some(at.saturating_add(ANSWERED_MS)),
            Some((Another::Beside, _)) | None => None,
        }
    }

    fn standing(&self, now: Millis, keeps_two: bool) -> Standing {
        if now.saturating_sub(self.begun) < FRESH_MS {
            return Standing::Resting;
        }
        let Some((what, at)) = self.asked.get() else {
            return Standing::Ready { keeps_two };
        };
        let again = match what {
            Another::Instead => INSTEAD_AGAIN_MS,
            Another::Beside => BESIDE_AGAIN_MS,
        };
        match now.saturating_sub(at) {
            passed if passed < ANSWERED_MS => Standing::Asked(what),
            passed if passed < again => Standing::Resting,
            _ => Standing::Ready { keeps_two },
        }
    }
}

impl Link {
    /// Whether the caller of this link may be asked for another one.
    pub(crate) fn standing(&self, now: Millis) -> Standing {
        let session = self.session.borrow();
        if self.closing.get() || !session.is_up() {
            return Standing::Resting;
        }
        self.elsewhere.standing(now, session.may_ask_for_two())
    }

    /// Asks the caller for another link.
    pub(crate) fn ask_for(&self, env: &Env, what: Another) {
        let now = env.clock.now_ms();
        self.elsewhere.asked.set(Some((what, now)));
        self.session.borrow_mut().ask_for(what);
        env.stats.links_asked.inc();
        self.stir();
    }

    /// Whether new streams are refused, because the Worker ends and the caller has had its time.
    pub(super) fn is_told_to_go(&self, env: &Env, now: Millis) -> bool {
        let had_its_time = || {
            self.elsewhere
                .waits_until()
                .is_some_and(|until| now >= until)
        };
        env.is_draining() || env.is_retiring() && had_its_time()
    }
}

impl Links {
    /// The links that other nodes have opened, by their bands.
    pub(crate) fn by_band(&self) -> HashMap<Band, Rc<Link>, RandomState> {
        let from = self.from.borrow();
        let links = from.values().filter_map(Weak::upgrade);
        links
            .filter_map(|link| Some((link.elsewhere.band?, link)))
            .collect()
    }

    /// Asks callers to replace their links: at most `most` that were not asked yet, or all of them if `None`.
    pub(crate) fn ask_callers(&self, most: Option<usize>) {
        let is_new = |link: &Rc<Link>| {
            let asked = most.is_some() && link.elsewhere.waits_until().is_some();
            !link.closing.get() && !asked
        };
        let most = most.unwrap_or(usize::MAX);
        let links = self.by_band().into_values();
        for link in links.filter(is_new).take(most) {
            let is_up = link.session.borrow().is_up();
            match is_up {
                true => link.ask_for(&self.env, Another::Instead),
                // The caller gets the GOAWAY when the link is resumed, if it ever is.
                false => link.go_away(Code::GOING_AWAY),
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn standing(elsewhere: &Elsewhere, now: Millis) -> Standing {
        elsewhere.standing(now, true)
    }

    #[test]
    fn a_caller_is_asked_once_and_has_its_time() {
        let ready = Standing::Ready { keeps_two: true };
        for (what, again) in [
            (Another::Instead, INSTEAD_AGAIN_MS),
            (Another::Beside, BESIDE_AGAIN_MS),
        ] {
            let elsewhere = Elsewhere {
                begun: 5_000,
                ..Elsewhere::default()
            };
            assert_eq!(standing(&elsewhere, 5_999), Standing::Resting);
            assert_eq!(standing(&elsewhere, 6_000), ready);
            elsewhere.asked.set(Some((what, 7_000)));
            assert_eq!(standing(&elsewhere, 8_999), Standing::Asked(what));
            assert_eq!(standing(&elsewhere, 9_000), Standing::Resting);
            assert_eq!(standing(&elsewhere, 6_999 + again), Standing::Resting);
            assert_eq!(standing(&elsewhere, 7_000 + again), ready);
            let waits = matches!(what, Another::Instead).then_some(9_000);
            assert_eq!(elsewhere.waits_until(), waits);
        }
    }
}
