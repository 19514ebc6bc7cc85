//! Two ends of a link, a network that fails in every way it can, and two owners who do anything they may,
//! all by chance: of a seed, or of a script that a fuzzer writes.
//!
//! ```text
//!   owner ──▶ client ══ up ═════▶ server ◀── owner      cut at any byte, each end notices later
//!         ◀──        ◀═════ down ═        ──▶           delivered in any pieces, or not for seconds
//!                 Ledger: what was sent on             servers restart and know no token
//!                 which stream, and what came
//! ```
//!
//! After every step what holds always is checked, and when chance has run out the network heals, every stream
//! is ended and everything has to have arrived and to be freed. Whatever does not hold panics.

mod choices;
mod ledger;
mod network;

#[cfg(test)]
mod tests;

use super::super::frame::{Code, Serial};
use super::super::hello::{Hello, Limits, Token};
use super::{End, NoStream, Session, Verdict};
pub use choices::Choices;
use ledger::{Ledger, Side, Teller};
use network::Connection;

/// Bytes that a body grows by at once, at most.
const MOST_SENT: usize = 40_000;
/// Steps in which a healed network has to bring everything to its end.
const PATIENCE: usize = 100_000;

/// What a run came to, to see that chance reaches everything.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
pub struct Tally {
    /// Streams that were opened.
    pub streams: u64,
    /// Those that the other end refused.
    pub refused: u64,
    /// Those that were reset by an owner.
    pub reset: u64,
    /// Those that were lost with their session.
    pub lost: u64,
    /// Connections that were made.
    pub connections: u64,
    /// Sessions that were gone on with on another connection.
    pub resumed: u64,
    /// Sessions that a client gave up.
    pub given_up: u64,
    /// Servers that forgot their sessions.
    pub restarts: u64,
    /// Connections that an end gave up for silence.
    pub dead: u64,
    /// Bytes of bodies that arrived.
    pub bytes: u64,
    /// Sends that had to wait.
    pub waits: u64,
}

/// Both ends and all between them.
pub struct World<'a> {
    choices: Choices<'a>,
    now_ms: u64,
    limits: [Limits; 2],
    /// Bytes that a direction of the network holds.
    capacity: usize,
    /// Nothing fails but by itself.
    is_calm: bool,
    client: Session,
    server: Option<Session>,
    tokens: u64,
    connection: Option<Connection>,
    ledger: Ledger,
    tally: Tally,
}

impl<'a> World<'a> {
    /// Runs at most `steps` steps by these choices, heals everything, and checks.
    ///
    /// # Panics
    /// When anything does not hold.
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
        let client = Limits {
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
        let server = Limits {
            stream_window: choices.of(&[65_536, 100_000]),
            max_streams: choices.of(&[1024, 1, 3]) as u16,
            retention_ms: choices.of(&[30_000, 30_000, 30_000, 3000, 0]),
            grown_window: choices.of(&[262_144, 0]),
            ..Limits::INITIAL
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

    fn open(&mut self) {
        let stream = self.ledger.draw(&mut self.choices);
        let (destination, head) = (stream.destination(), stream.head());
        let (scope, wants) = (stream.scope(), stream.wants_answer);
        let may = self.client.may_open();
        let opened = if stream.is_flow {
            self.client.open_flow(&destination)
        } else {
            self.client.open(scope, &destination, &head, wants)
        };
        match opened {
            Ok(serial) => {
                assert!(may, "it was said that none could be opened");
                self.ledger.open(serial, stream);
            }
            Err(NoStream::TooLong) => {
                assert!(may && head.len() > self.client.theirs.max_head as usize);
            }
            Err(_) => assert!(!may, "it was said that one could be opened"),
        }
    }

    fn send(&mut self, side: Side) {
        let Some((serial, id)) = self.ledger.any(side, &mut self.choices) else {
            return;
        };
        let most = self.choices.of(&[10, 300, 5000, MOST_SENT]);
        let length = self.choices.below(most) + 1;
        self.send_bytes(side, serial, id, length);
    }

    /// Returns how many were taken.
    fn send_bytes(&mut self, side: Side, serial: Serial, id: usize, length: usize) -> usize {
        let may = self.ledger.may_send(side, id);
        let bytes = self.ledger.next_bytes(side, id, length);
        let Some(session) = self.session(side) else {
            return 0;
        };
        let room = session.room(serial);
        let taken = session.send(serial, &bytes);
        assert!(taken <= room, "more is taken than there is room");
        assert!(
            may || taken == 0,
            "bytes are taken on a stream that is ended"
        );
        assert!(
            !may || taken >= room.min(length).min(1),
            "room is for something"
        );
        if taken < length && may {
            self.tally.waits += 1;
        }
        self.ledger.sent(side, id, taken, may && taken < length);
        taken
    }

    fn answer(&mut self) {
        let Some((serial, id)) = self.ledger.any(Side::Server, &mut self.choices) else {
            return;
        };
        let interim = self.choices.one_in(3);
        let long = self.choices.one_in(8);
        self.answer_one(serial, id, interim, long);
    }

    fn answer_one(&mut self, serial: Serial, id: usize, interim: bool, long: bool) {
        let may = self.ledger.may_answer(id);
        let Some(session) = self.server.as_mut().filter(|_| may) else {
            return;
        };
        let (code, head) = self.ledger.next_answer(id, interim, long);
        match session.answer(serial, 0, code, &head) {
            Ok(()) => self.ledger.answered(id, interim, code, head),
            Err(NoStream::Full) => self.ledger.sent(Side::Server, id, 0, true),
            Err(NoStream::TooLong) => assert!(head.len() > session.theirs.max_head as usize),
            Err(error) => panic!("an answer is not taken: {error:?}"),
        }
    }

    fn end(&mut self, side: Side) {
        if let Some((serial, id)) = self.ledger.any(side, &mut self.choices) {
            self.end_one(side, serial, id);
        }
    }

    fn end_one(&mut self, side: Side, serial: Serial, id: usize) {
        if !self.ledger.may_end(side, id) {
            return;
        }
        let Some(session) = self.session(side) else {
            return;
        };
        let over = session.end(serial);
        self.ledger.end(side, serial, over);
    }

    fn reset(&mut self, side: Side) {
        if !self.choices.one_in(3) {
            return;
        }
        let Some((serial, id)) = self.ledger.any(side, &mut self.choices) else {
            return;
        };
        let code = Code(self.choices.below(256) as u8);
        let first = !self.ledger.is_reset(side, id);
        let Some(session) = self.session(side) else {
            return;
        };
        let over = session.reset(serial, code);
        assert!(first || !over, "a stream is over twice");
        if first {
            self.tally.reset += 1;
            self.ledger.reset(side, serial, code, over);
        }
    }

    fn consume(&mut self, side: Side) {
        let Some((serial, id)) = self.ledger.any(side, &mut self.choices) else {
            return;
        };
        let unread = self.ledger.unread(side, id);
        let bytes = if self.choices.one_in(3) {
            self.choices.below(unread + 1)
        } else {
            unread
        };
        self.consume_one(side, serial, id, bytes);
    }

    fn consume_one(&mut self, side: Side, serial: Serial, id: usize, bytes: usize) {
        self.ledger.consumed(side, id, bytes);
        if let Some(session) = self.session(side) {
            session.consumed(serial, bytes);
        }
    }

    /// Returns whether there was anything.
    fn transmit(&mut self, side: Side) -> bool {
        let max = self.choices.of(&[usize::MAX, 1, 1500, 16_384]);
        let now_ms = self.now_ms;
        let capacity = self.capacity;
        let Some(connection) = &mut self.connection else {
            return false;
        };
        let session = match side {
            Side::Client => Some(&mut self.client),
            Side::Server => self.server.as_mut(),
        };
        let Some(session) = session.filter(|_| connection.has(side)) else {
            return false;
        };
        if connection.way_from(side).len() >= capacity {
            return false;
        }
        let wants = session.wants_transmit();
        let mut bytes = Vec::new();
        session.transmit(&mut bytes, max, now_ms);
        assert!(!wants || !bytes.is_empty(), "what was to be sent is not");
        connection.put(side, &bytes);
        !bytes.is_empty()
    }

    /// Brings bytes to this side. Returns whether there were any.
    fn deliver(&mut self, side: Side) -> bool {
        let most = self.choices.of(&[usize::MAX, 1, 20, 2000, 30_000]);
        let now_ms = self.now_ms;
        let Some(connection) = &mut self.connection else {
            return false;
        };
        let bytes = connection.take(side, most, now_ms);
        if bytes.is_empty() {
            return false;
        }
        if side == Side::Server && !connection.is_known {
            connection.accepted.extend_from_slice(&bytes);
            self.accept();
            return true;
        }
        let mut teller = Teller::new(&mut self.ledger, side);
        let session = match side {
            Side::Client => Some(&mut self.client),
            Side::Server => self.server.as_mut(),
        };
        let received = session.map(|session| session.receive(&bytes, now_ms, &mut teller));
        assert!(
            matches!(received, None | Some(Ok(()))),
            "{side:?}: {received:?}"
        );
        true
    }

    /// A server finds the session that a connection is for.
    fn accept(&mut self) {
        let now_ms = self.now_ms;
        let Some(connection) = &mut self.connection else {
            return;
        };
        let hello = Hello::parse(&connection.accepted).expect("a client says HELLO");
        let Some((hello, _)) = hello else {
            return;
        };
        connection.is_known = true;
        let bytes = std::mem::take(&mut connection.accepted);
        let known = self.server.as_ref().and_then(Session::token) == Some(hello.token);
        if known {
            self.tally.resumed += 1;
        } else {
            self.forget_server();
            self.tokens += 1;
            let token = Token((u128::from(self.tokens) << 64 | 7).to_be_bytes());
            self.server = Some(Session::server(token, self.limits[1]));
        }
        let mut teller = Teller::new(&mut self.ledger, Side::Server);
        if let Some(server) = &mut self.server {
            server.connected(now_ms);
            let received = server.receive(&bytes, now_ms, &mut teller);
            assert_eq!(received, Ok(()));
        }
    }

    fn forget_server(&mut self) {
        if let Some(mut server) = self.server.take() {
            server.fail_all(&mut Teller::new(&mut self.ledger, Side::Server));
            assert_eq!(server.open_streams(), 0);
        }
    }

    fn pass_time(&mut self) {
        let ms = match self.choices.below(16) {
            0..9 => self.choices.below(5) as u64,
            9..14 => self.choices.below(200) as u64,
            14 => self.choices.below(4000) as u64,
            _ => match self.next_deadline() {
                Some(at) => at.saturating_sub(self.now_ms),
                None => 0,
            },
        };
        self.pass(ms);
    }

    fn next_deadline(&self) -> Option<u64> {
        let server = self.server.as_ref().and_then(Session::next_deadline);
        let both = [self.client.next_deadline(), server];
        both.into_iter().flatten().min()
    }

    fn pass(&mut self, ms: u64) {
        self.now_ms += ms;
        for side in [Side::Client, Side::Server] {
            self.tick(side);
        }
    }

    fn tick(&mut self, side: Side) {
        let now_ms = self.now_ms;
        let session = match side {
            Side::Client => Some(&mut self.client),
            Side::Server => self.server.as_mut(),
        };
        let Some(session) = session else {
            return;
        };
        match session.tick(now_ms, &mut Teller::new(&mut self.ledger, side)) {
            Verdict::GoOn => {
                let due = session.next_deadline();
                let waits_for_owner = session.wants_transmit();
                assert!(
                    due.is_none_or(|at| at > now_ms) || waits_for_owner,
                    "a tick leaves undone what is due: {due:?} at {now_ms}"
                );
            }
            Verdict::PathDead => {
                self.tally.dead += 1;
                session.disconnected(now_ms);
                if let Some(connection) = &mut self.connection {
                    connection.give_up(side);
                }
                self.drop_connection();
            }
            Verdict::SessionOver => {
                assert_eq!(
                    self.ledger.open_streams(side),
                    0,
                    "streams outlive their session"
                );
                if let Some(connection) = &mut self.connection {
                    connection.give_up(side);
                }
                match side {
                    Side::Client => {
                        self.tally.given_up += 1;
                        self.client = Session::client(self.limits[0]);
                    }
                    Side::Server => self.server = None,
                }
                self.drop_connection();
            }
        }
    }

    fn fail(&mut self) {
        let kind = self.choices.below(4);
        let is_calm = self.is_calm;
        let Some(connection) = self.connection.as_mut().filter(|_| !is_calm) else {
            return;
        };
        match kind {
            0 | 1 => connection.cut(&mut self.choices),
            2 => {
                let ms = self.choices.of(&[100, 1500, 5000]);
                connection.be_silent_until(self.now_ms + ms);
            }
            _ => {}
        }
    }

    /// One side sees that the connection is cut, or gives it up.
    fn notice(&mut self, side: Side) {
        let now_ms = self.now_ms;
        let Some(connection) = &mut self.connection else {
            return;
        };
        let has = connection.has(side);
        if !connection.is_cut() || !has {
            return;
        }
        connection.give_up(side);
        let ms = if self.choices.one_in(4) { 10 } else { 0 };
        if let Some(session) = self.session(side) {
            session.disconnected(now_ms);
        }
        self.drop_connection();
        self.pass(ms);
    }

    fn drop_connection(&mut self) {
        if self.connection.as_ref().is_some_and(Connection::is_gone) {
            self.connection = None;
        }
    }

    /// A client without a connection makes another one; a server may have to learn from it that the one it had
    /// is gone.
    fn connect(&mut self) {
        let has = |connection: &Connection| connection.has(Side::Client);
        if self.connection.as_ref().is_some_and(has) {
            return;
        }
        // Whether the session can go on is said first.
        self.tick(Side::Client);
        self.tally.connections += 1;
        let was_on = self.connection.take();
        if was_on.is_some_and(|connection| connection.has(Side::Server)) {
            let now_ms = self.now_ms;
            if let Some(server) = &mut self.server {
                server.disconnected(now_ms);
            }
        }
        self.client.connected(self.now_ms);
        self.connection = Some(Connection::default());
    }

    fn rarely(&mut self, side: Side) {
        match self.choices.below(30) {
            0 if !self.is_calm => {
                self.tally.restarts += 1;
                self.forget_server();
                if let Some(connection) = &mut self.connection {
                    connection.cut(&mut self.choices);
                    connection.give_up(Side::Server);
                }
                self.drop_connection();
            }
            1 => {
                let code = self.choices.of(&[Code::IDLE, Code::EXPIRED]);
                if let Some(session) = self.session(side) {
                    session.go_away(code);
                }
            }
            2..10 => self.replace(),
            _ => {}
        }
    }

    /// A session that has come to its end makes way for another one.
    fn replace(&mut self) {
        let going = self.client.leaving.is_some() || self.client.peer_leaving;
        if !going || !self.client.is_idle() {
            return;
        }
        if let Some(connection) = &mut self.connection {
            connection.give_up(Side::Client);
        }
        self.drop_connection();
        self.tally.given_up += 1;
        self.client = Session::client(self.limits[0]);
    }

    /// Brings everything that is under way to where it goes. Both ends then agree on which streams are
    /// open.
    fn settle(&mut self) {
        let both = [Side::Client, Side::Server];
        let up = self.connection.as_ref().is_some_and(|connection| {
            !connection.is_cut() && both.iter().all(|&side| connection.has(side))
        });
        if !up {
            return;
        }
        if let Some(connection) = &mut self.connection {
            connection.be_silent_until(0);
        }
        for round in 0.. {
            assert!(round < PATIENCE, "two ends talk without an end");
            let mut moved = false;
            for side in both {
                moved |= self.transmit(side);
                moved |= self.deliver(side.other());
            }
            if !moved {
                break;
            }
        }
        let serials = |session: &Session| {
            let mut serials: Vec<_> = session.streams.iter().map(|one| one.serial).collect();
            serials.sort_unstable();
            serials
        };
        if let Some(server) = &self.server {
            assert!(!self.client.wants_transmit() && !server.wants_transmit());
            assert_eq!(serials(&self.client), serials(server), "both ends agree");
            assert_eq!(server.refused, 0, "refused streams are gone");
            assert_eq!(self.client.received, server.out.end(), "all came");
            assert_eq!(server.received, self.client.out.end(), "all came");
        }
    }

    /// What holds after every step.
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
            // One head may go over it, and what is said about streams.
            let about_streams = 64 * 1024;
            let most = session.window() + session.theirs.max_head as usize + about_streams;
            assert!(kept <= most, "{side:?}: {kept} bytes are kept");
            assert!(session.blocked.len() <= 2 * usize::from(Limits::INITIAL.max_streams) + 1);
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

    /// Heals the network and ends every stream.
    fn finish(&mut self) {
        for round in 0.. {
            assert!(round < PATIENCE, "it hangs: {:?}", self.client);
            if self.is_finished() {
                break;
            }
            self.finish_round();
            self.check();
        }
        // Nothing is kept of what is over.
        for _ in 0..4 {
            self.finish_round();
            self.settle();
            self.pass(5000);
        }
        assert_eq!(self.client.heap_bytes(), 0, "{:?}", self.client);
        if let Some(server) = &self.server {
            assert_eq!(server.heap_bytes(), 0, "{server:?}");
        }
        // What nobody answers may be lost without a word.
        let kept = self.tokens == 1 && self.tally.given_up + self.tally.restarts == 0;
        let kept = kept && self.limits[1].max_streams > 3;
        let leaving = |session: &Session| session.leaving.is_some();
        let left = leaving(&self.client) || self.server.as_ref().is_none_or(leaving);
        self.ledger.check_all(kept && !left);
    }

    fn is_finished(&self) -> bool {
        let idle = |session: &Session| session.is_idle();
        let open = [Side::Client, Side::Server].map(|side| self.ledger.open_streams(side));
        open == [0, 0] && self.client.is_idle() && self.server.as_ref().is_none_or(idle)
    }

    fn finish_round(&mut self) {
        let both = [Side::Client, Side::Server];
        if let Some(connection) = &mut self.connection {
            connection.be_silent_until(0);
        }
        for side in both {
            self.notice(side);
        }
        self.connect();
        let mut moved = false;
        for side in both {
            while self.transmit(side) {
                moved = true;
            }
            while self.deliver(side.other()) {
                moved = true;
            }
            for (serial, id) in self.ledger.all(side) {
                moved |= self.finish_stream(side, serial, id);
            }
        }
        if !moved {
            let next = self.next_deadline();
            let ms = next.map_or(1, |at| at.saturating_sub(self.now_ms).max(1));
            self.pass(ms);
        }
    }

    /// Brings a stream closer to its end. Returns whether anything changed.
    fn finish_stream(&mut self, side: Side, serial: Serial, id: usize) -> bool {
        let unread = self.ledger.unread(side, id);
        if unread > 0 {
            self.consume_one(side, serial, id, unread);
        }
        if side == Side::Server && self.ledger.may_answer(id) && !self.ledger.is_blocked(side, id) {
            self.answer_one(serial, id, false, false);
        }
        // One more piece that has to arrive.
        if self.ledger.may_send(side, id) && self.ledger.owes_last_bytes(side, id) {
            if self.ledger.is_blocked(side, id) {
                return unread > 0;
            }
            let taken = self.send_bytes(side, serial, id, 1000);
            return unread > 0 || taken > 0;
        }
        if self.ledger.may_end(side, id) {
            self.end_one(side, serial, id);
            return true;
        }
        unread > 0
    }
}
