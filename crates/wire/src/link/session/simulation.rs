//! Two ends of a link, a network that fails in every possible way, and two owners that do anything they are allowed to,
//! all at random: from a seed, or from a script written by a fuzzer.
//!
//! ```text
//!   owner ──▶ client ══ up ═════▶ server ◀── owner      cut at any byte, each end notices later
//!         ◀──        ◀═════ down ═        ──▶           delivered in any pieces, or not for seconds
//!                 Ledger: what was sent on             servers restart and know no token
//!                 which stream, and what came
//! ```
//!
//! The invariants are checked after every step. At the end of the choices the network heals, every stream is ended, and
//! everything must have arrived and been freed. A violation panics.

mod choices;
mod events;
mod ledger;
mod network;
mod owners;
mod rest;

#[cfg(test)]
mod tests;

use super::super::hello::LinkLimits;
use super::{End, Session};
pub use choices::Choices;
use ledger::{Ledger, Side, Teller};
use network::Connection;

/// Limit on the bytes that one send adds to a body.
const MOST_SENT: usize = 40_000;
/// Limit on the steps in which a healed network must finish everything.
const PATIENCE: usize = 100_000;

/// Counters of a run, to verify that the random choices reach every case.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
pub struct Tally {
    /// Streams opened.
    pub streams: u64,
    /// Streams refused by the peer.
    pub refused: u64,
    /// Streams reset by an owner.
    pub reset: u64,
    /// Streams lost with their session.
    pub lost: u64,
    /// Connections made.
    pub connections: u64,
    /// Sessions resumed on another connection.
    pub resumed: u64,
    /// Sessions given up by a client.
    pub given_up: u64,
    /// Server restarts, which forget all sessions.
    pub restarts: u64,
    /// Connections given up because the peer was silent.
    pub dead: u64,
    /// Body bytes that arrived.
    pub bytes: u64,
    /// Sends that had to wait.
    pub waits: u64,
}

/// Both ends, and the network between them.
pub struct World<'a> {
    choices: Choices<'a>,
    now_ms: u64,
    limits: [LinkLimits; 2],
    /// Buffer size of each direction of the network, in bytes.
    capacity: usize,
    /// No failures are injected any more.
    is_calm: bool,
    client: Session,
    server: Option<Session>,
    tokens: u64,
    connection: Option<Connection>,
    ledger: Ledger,
    tally: Tally,
}

impl<'a> World<'a> {
    /// Runs at most `steps` steps with these choices, heals everything, and checks.
    ///
    /// # Panics
    /// When an invariant is violated.
    pub fn run(choices: Choices<'a>, steps: usize) -> Tally {
        let mut world = Self::new(choices);
        for _ in 0..steps {
            if world.choices.are_exhausted() {
                break;
            }
            world.step();
            world.check();
        }
        world.finish();
        world.tally.streams = world.ledger.records() as u64;
        world.tally.refused = world.ledger.refused();
        world.tally.lost = world.ledger.lost();
        world.tally.bytes = world.ledger.bytes();
        world.tally
    }

    fn new(mut choices: Choices<'a>) -> Self {
        let small = choices.one_in(2);
        let client = LinkLimits {
            stream_window: choices.of(&[65_536, 1024, 5000]),
            link_window: if small {
                choices.of(&[8192, 20_000])
            } else {
                1 << 20
            },
            max_frame: choices.of(&[16_384, 1024]),
            max_streams: choices.of(&[1024, 2]) as u16,
            max_templates: choices.of(&[256, 0, 2]) as u16,
            template_bytes: choices.of(&[1 << 20, 0, 3000]),
            max_head: choices.of(&[65_536, 2000]),
            retention_ms: choices.of(&[30_000, 30_000, 30_000, 2000, 0]),
            grown_window: choices.of(&[262_144, 0]),
        };
        let server = LinkLimits {
            stream_window: choices.of(&[65_536, 100_000]),
            max_streams: choices.of(&[1024, 1, 3]) as u16,
            retention_ms: choices.of(&[30_000, 30_000, 30_000, 3000, 0]),
            grown_window: choices.of(&[262_144, 0]),
            ..LinkLimits::INITIAL
        };
        Self {
            now_ms: 1000,
            limits: [client, server],
            capacity: choices.of(&[200_000, 3000, 30_000]) as usize,
            client: Session::client(client),
            is_calm: choices.one_in(3),
            server: None,
            tokens: 0,
            connection: None,
            ledger: Ledger::new(client.grown_window.max(client.stream_window)),
            tally: Tally::default(),
            choices,
        }
    }

    fn step(&mut self) {
        let side = self.choices.of(&[Side::Client, Side::Server]);
        match self.choices.below(64) {
            0..7 => self.open(),
            7..17 => self.send(side),
            17..22 => self.answer(),
            22..26 => self.end(side),
            26 => self.reset(side),
            27..34 => self.consume(side),
            34..44 => {
                self.transmit(side);
            }
            44..56 => {
                self.deliver(side);
            }
            56 | 57 => self.pass_time(),
            58 => self.fail(),
            59 | 60 => self.connect(),
            61 => self.notice(side),
            62 => {
                if self.choices.one_in(2) {
                    self.settle();
                }
            }
            _ => self.rarely(side),
        }
    }

    fn session(&mut self, side: Side) -> Option<&mut Session> {
        match side {
            Side::Client => Some(&mut self.client),
            Side::Server => self.server.as_mut(),
        }
    }

    /// Checks the invariants that hold after every step.
    fn check(&self) {
        let both = [
            (Side::Client, Some(&self.client)),
            (Side::Server, self.server.as_ref()),
        ];
        for (side, session) in both {
            let open = self.ledger.open_streams(side);
            let Some(session) = session else {
                assert_eq!(open, 0);
                continue;
            };
            assert_eq!(session.open_streams(), open, "{side:?}: open streams");
            let kept = session.out.unacknowledged();
            // The window may be exceeded by one head, and by frames about streams.
            let about_streams = 64 * 1024;
            let most = session.window() + session.theirs.max_head as usize + about_streams;
            assert!(kept <= most, "{side:?}: {kept} bytes are kept");
            assert!(session.blocked.len() <= 2 * usize::from(LinkLimits::INITIAL.max_streams) + 1);
            assert_eq!(session.end == End::Server, side == Side::Server);
            for stream in session.streams.iter().filter(|stream| !stream.refused) {
                let serial = stream.serial().expect("an open stream");
                self.ledger
                    .check(side, serial, session.room(serial), session.link_room());
                assert!(
                    stream.sending || stream.receiving,
                    "a stream that is over is there"
                );
                let out = stream.room + stream.unread + stream.read;
                assert!(
                    stream.dropped || out == stream.window,
                    "credit is neither lost nor made"
                );
            }
        }
    }
}
