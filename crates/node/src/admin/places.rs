//! The places of a server's connections: there are few, and a connection that keeps the server waiting gives its place
//! to one that may not.
//!
//! ```text
//!   accepted ──▶ asks ── question is whole ──▶ served ── answer is there ──▶ takes it ──▶ closed
//!                  │ gives way                                                  │ gives way after a second
//!                  └──────────────────────────▶ closed ◀────────────────────────┘
//! ```
//!
//! When all places are taken, the peer that keeps the server waiting with most of them gives one up, the oldest. A
//! newcomer of that very peer, or one that would only take the turn of another like itself, gets in only when that one
//! has had its time.

use std::time::{Duration, Instant};

#[cfg(test)]
mod tests;

/// Connections of a server at a time.
pub(super) const MOST: usize = 16;
/// How long a request may be on its way before one of the same peer takes its place.
const ASKS_WITHIN: Duration = Duration::from_millis(100);
/// How long an answer may be on its way before another connection takes the place.
const TAKES_WITHIN: Duration = Duration::from_secs(1);

/// Who has the places. Has no clock.
#[derive(Debug)]
pub(super) struct Places<P> {
    taken: Vec<Place<P>>,
    next: u64,
}

#[derive(Debug)]
struct Place<P> {
    id: u64,
    peer: P,
    step: Step,
}

/// How far a connection is, and since when.
#[derive(Debug, Clone, Copy)]
enum Step {
    Asks(Instant),
    /// It waits for us.
    Served,
    Takes(Instant),
}

/// What becomes of a newcomer.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Entered {
    /// Its place.
    pub(super) id: u64,
    /// The connection that gives way to it.
    pub(super) instead: Option<u64>,
}

impl<P: PartialEq + Copy> Places<P> {
    pub(super) fn new() -> Self {
        Places {
            taken: Vec::with_capacity(MOST),
            next: 0,
        }
    }

    /// A place for a newcomer; `None` when there is none, and it is closed.
    pub(super) fn enter(&mut self, peer: P, now: Instant) -> Option<Entered> {
        let instead = match self.taken.len() < MOST {
            true => None,
            false => Some(self.gives_way(peer, now)?),
        };
        if let Some(instead) = instead {
            self.leave(instead);
        }
        let id = self.next;
        self.next += 1;
        let step = Step::Asks(now);
        self.taken.push(Place { id, peer, step });
        Some(Entered { id, instead })
    }

    /// The question is whole: it is our turn.
    pub(super) fn asked(&mut self, id: u64) {
        self.step(id, Step::Served);
    }

    /// The answer is there, to be taken.
    pub(super) fn answered(&mut self, id: u64, now: Instant) {
        self.step(id, Step::Takes(now));
    }

    /// The connection is closed.
    pub(super) fn leave(&mut self, id: u64) {
        self.taken.retain(|place| place.id != id);
    }

    fn step(&mut self, id: u64, step: Step) {
        let place = self.taken.iter_mut().find(|place| place.id == id);
        if let Some(place) = place {
            place.step = step;
        }
    }

    /// The connection that gives way, if one does.
    fn gives_way(&self, newcomer: P, now: Instant) -> Option<u64> {
        let waits = |place: &&Place<P>| place.waits(now).is_some();
        let of = |peer: P| {
            let waiting = self.taken.iter().filter(waits);
            waiting.filter(|place| place.peer == peer).count()
        };
        // They stand in the order in which they came: of several the first is the oldest.
        let waiting = self.taken.iter().filter(waits).rev();
        let first = waiting.max_by_key(|place| of(place.peer))?;
        let count = of(first.peer);
        let has_had_its_time = first.waits(now)? >= ASKS_WITHIN;
        let is_of_a_crowd = count > 1 && first.peer != newcomer && count > of(newcomer);
        (is_of_a_crowd || has_had_its_time).then_some(first.id)
    }
}

impl<P> Place<P> {
    /// How long it keeps the server waiting, if it does, and may give way.
    fn waits(&self, now: Instant) -> Option<Duration> {
        match self.step {
            Step::Asks(since) => Some(now.saturating_duration_since(since)),
            Step::Served => None,
            Step::Takes(since) => {
                let waits = now.saturating_duration_since(since);
                (waits >= TAKES_WITHIN).then_some(waits)
            }
        }
    }
}
