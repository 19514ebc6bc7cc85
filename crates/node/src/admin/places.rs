//! Limits a server's connections to [`MOST`] places. When all are taken, a new connection may replace one that keeps
//! the server waiting.
//!
//! ```text
//!   accepted ──▶ asks ── question is whole ──▶ served ── answer is there ──▶ takes it ──▶ closed
//!                  │ gives way                                                  │ gives way after a second
//!                  └──────────────────────────▶ closed ◀────────────────────────┘
//! ```
//!
//! The connection that is closed is the oldest waiting one of the peer with the most waiting connections. It is closed
//! at once if that peer has several, and more than the new connection's peer. Otherwise it must have waited for
//! `ASKS_WITHIN`: a peer cannot push out its own requests, or those of peers with equally many, at once.

use std::time::{Duration, Instant};

#[cfg(test)]
mod tests;

/// Most connections of a server at a time.
pub(super) const MOST: usize = 16;
/// How long a request may take to arrive before any newcomer may take its place.
const ASKS_WITHIN: Duration = Duration::from_millis(100);
/// How long a client may take to read an answer before another connection may take its place.
const TAKES_WITHIN: Duration = Duration::from_secs(1);

/// The connections that have places. Has no clock of its own.
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

/// Progress of a connection, and since when.
#[derive(Debug, Clone, Copy)]
enum Step {
    Asks(Instant),
    /// The client waits for the server, so this connection is never closed for another.
    Served,
    Takes(Instant),
}

/// A new connection that got a place.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Entered {
    pub(super) id: u64,
    /// The connection that must be closed for it.
    pub(super) instead: Option<u64>,
}

impl<P: PartialEq + Copy> Places<P> {
    pub(super) fn new() -> Self {
        Places {
            taken: Vec::with_capacity(MOST),
            next: 0,
        }
    }

    /// Assigns a place to a new connection; `None` when none is free and the connection must be closed.
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

    /// The request is complete; the server prepares the answer.
    pub(super) fn asked(&mut self, id: u64) {
        self.step(id, Step::Served);
    }

    /// The answer is ready; the client reads it.
    pub(super) fn answered(&mut self, id: u64, now: Instant) {
        self.step(id, Step::Takes(now));
    }

    /// Frees the place of a closed connection.
    pub(super) fn leave(&mut self, id: u64) {
        self.taken.retain(|place| place.id != id);
    }

    fn step(&mut self, id: u64, step: Step) {
        let place = self.taken.iter_mut().find(|place| place.id == id);
        if let Some(place) = place {
            place.step = step;
        }
    }

    /// Chooses the connection to close for a newcomer, if one may be closed.
    fn gives_way(&self, newcomer: P, now: Instant) -> Option<u64> {
        let waits = |place: &&Place<P>| place.waits(now).is_some();
        let of = |peer: P| {
            let waiting = self.taken.iter().filter(waits);
            waiting.filter(|place| place.peer == peer).count()
        };
        // `taken` is in order of arrival, and `max_by_key` returns the last maximum: reversed, that is the oldest.
        let waiting = self.taken.iter().filter(waits).rev();
        let first = waiting.max_by_key(|place| of(place.peer))?;
        let count = of(first.peer);
        let has_had_its_time = first.waits(now)? >= ASKS_WITHIN;
        let is_of_a_crowd = count > 1 && first.peer != newcomer && count > of(newcomer);
        (is_of_a_crowd || has_had_its_time).then_some(first.id)
    }
}

impl<P> Place<P> {
    /// How long the connection has kept the server waiting; `None` if it may not be closed.
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
