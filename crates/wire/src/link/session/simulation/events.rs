//! Events of the simulation: bytes, connections, sessions and time.

use super::super::super::frame::Code;
use super::super::super::hello::{Hello, Token};
use super::super::{Session, Verdict};
use super::{Connection, Side, Teller, World};

impl World<'_> {
    /// Returns whether there was anything to send.
    pub(super) fn transmit(&mut self, side: Side) -> bool {
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

    /// Delivers bytes to this side. Returns whether there were any.
    pub(super) fn deliver(&mut self, side: Side) -> bool {
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

    /// The server finds the session for a new connection.
    pub(super) fn accept(&mut self) {
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

    pub(super) fn forget_server(&mut self) {
        if let Some(mut server) = self.server.take() {
            server.fail_all(&mut Teller::new(&mut self.ledger, Side::Server));
            assert_eq!(server.open_streams(), 0);
        }
    }

    pub(super) fn pass_time(&mut self) {
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

    pub(super) fn next_deadline(&self) -> Option<u64> {
        let server = self.server.as_ref().and_then(Session::next_deadline);
        let both = [self.client.next_deadline(), server];
        both.into_iter().flatten().min()
    }

    pub(super) fn pass(&mut self, ms: u64) {
        self.now_ms += ms;
        for side in [Side::Client, Side::Server] {
            self.tick(side);
        }
    }

    pub(super) fn tick(&mut self, side: Side) {
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

    pub(super) fn fail(&mut self) {
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

    /// One side notices that the connection is cut, or gives it up.
    pub(super) fn notice(&mut self, side: Side) {
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

    pub(super) fn drop_connection(&mut self) {
        if self.connection.as_ref().is_some_and(Connection::is_gone) {
            self.connection = None;
        }
    }

    /// A client without a connection makes a new one. The new connection may be the first sign for the server that the
    /// old one is gone.
    pub(super) fn connect(&mut self) {
        let has = |connection: &Connection| connection.has(Side::Client);
        if self.connection.as_ref().is_some_and(has) {
            return;
        }
        // First find out whether the session can be resumed.
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

    pub(super) fn rarely(&mut self, side: Side) {
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

    /// Replaces a session that has gone away and is idle.
    pub(super) fn replace(&mut self) {
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
}
