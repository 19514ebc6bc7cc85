//! For any bytes received, an end of a link keeps its limits and reports only possible events to its owner. The input
//! is raw bytes, or frames with completed heads, so that more of them are accepted.

use std::collections::BTreeSet;

use heddle_wire::link::frame::{Code, Serial};
use heddle_wire::link::hello::{Hello, LinkLimits, Token, VERSION};
use heddle_wire::link::session::{Opened, Session, Streams};

const TOKEN: Token = Token([9; 16]);

/// An owner that answers each event later, and checks the order of events.
#[derive(Default)]
struct Owner {
    open: BTreeSet<Serial>,
    /// Streams with pending work, and received bytes to confirm.
    busy: Vec<(Serial, usize)>,
}

impl Owner {
    fn check(&self, serial: Serial) {
        assert!(
            self.open.contains(&serial),
            "told of a stream that is not open"
        );
    }
}

impl Streams for Owner {
    fn opened(&mut self, serial: Serial, _: Opened, destination: &[u8], _: Option<u32>) {
        assert!(!destination.is_empty());
        assert!(self.open.insert(serial), "opened twice");
        self.busy.push((serial, 0));
    }
    fn head(&mut self, serial: Serial, _: Code, head: &[u8]) {
        self.check(serial);
        assert!(head.ends_with(b"\r\n\r\n") && head.len() <= LinkLimits::INITIAL.max_head as usize);
    }
    fn data(&mut self, serial: Serial, bytes: &[u8]) {
        self.check(serial);
        self.busy.push((serial, bytes.len()));
    }
    fn ended(&mut self, serial: Serial) {
        self.check(serial);
        self.busy.push((serial, 0));
    }
    fn reset(&mut self, serial: Serial, _: Code) {
        self.check(serial);
    }
    fn writable(&mut self, serial: Serial) {
        self.check(serial);
    }
    fn over(&mut self, serial: Serial) {
        assert!(self.open.remove(&serial), "over twice");
    }
    fn going_away(&mut self, _: Code, _: Option<Serial>) {}
    fn lost(&mut self, serial: Serial, _: bool) {
        assert!(self.open.remove(&serial), "lost twice");
    }
}

/// Checks one input.
pub fn check(data: &[u8]) {
    let Some((&how, data)) = data.split_first() else {
        return;
    };
    let is_server = how & 1 != 0;
    let (mut session, mut owner) = (new(is_server), Owner::default());
    session.connected(0);
    if !is_server {
        for number in 0..3 {
            let head = format!("GET /{number} HTTP/1.1\r\nHost: a\r\n\r\n");
            let serial = session.open(0, b"web", head.as_bytes(), number != 1);
            owner.open.extend(serial.ok());
        }
        owner.open.extend(session.open_flow(b"db").ok());
    }
    let mut bytes = Vec::new();
    if how & 2 == 0 {
        hello(!is_server).write_to(&mut bytes);
    }
    if how & 4 == 0 {
        bytes.extend_from_slice(data);
    } else {
        frames(data, is_server, &mut bytes);
    }
    let piece = match how >> 4 {
        0 => bytes.len(),
        small => usize::from(small),
    };
    let mut out = Vec::new();
    for (at, piece) in bytes.chunks(piece.max(1)).enumerate() {
        let now_ms = at as u64;
        if session.receive(piece, now_ms, &mut owner).is_err() {
            session.fail_all(&mut owner);
            assert!(owner.open.is_empty(), "streams outlive their session");
            return;
        }
        assert_eq!(session.open_streams(), owner.open.len());
        for (serial, came) in std::mem::take(&mut owner.busy) {
            act(&mut session, &mut owner, serial, came);
        }
        out.clear();
        session.transmit(&mut out, 4096, now_ms);
        assert!(session.heap_bytes() < 4 << 20, "{}", session.heap_bytes());
        session.tick(now_ms, &mut owner);
    }
    session.fail_all(&mut owner);
    assert!(owner.open.is_empty());
}

fn act(session: &mut Session, owner: &mut Owner, serial: Serial, came: usize) {
    session.consumed(serial, came);
    if came % 3 == 1 {
        let _ = session.answer(serial, 0, Code::OK, b"HTTP/1.1 200 OK\r\n\r\n");
        session.send(serial, &[7; 100]);
    }
    let over = match came % 5 {
        2 => session.end(serial),
        3 => session.reset(serial, Code::CANCELLED),
        _ => false,
    };
    if over {
        assert!(owner.open.remove(&serial), "over twice");
    }
}

fn new(is_server: bool) -> Session {
    if is_server {
        Session::server(TOKEN, LinkLimits::INITIAL)
    } else {
        Session::client(LinkLimits::INITIAL)
    }
}

fn hello(server: bool) -> Hello {
    Hello {
        server,
        version: VERSION,
        oldest: VERSION,
        token: if server { TOKEN } else { Token::NONE },
        received: 0,
        limits: LinkLimits::INITIAL,
        beside: !server,
        offline: false,
    }
}

/// Of four bytes of input, three become the frame head's second and third byte and its serial, and one the length; the
/// payload follows.
fn frames(mut data: &[u8], to_server: bool, out: &mut Vec<u8>) {
    while let Some((&[flags, code, serial, length], rest)) = data.split_first_chunk() {
        let direction = match (flags & 0x80, to_server) {
            (0, true) => flags & !0x20,
            (0, false) => flags | 0x20,
            _ => flags,
        };
        let (payload, rest) = rest.split_at(rest.len().min(length.into()));
        let code = if code < 200 { 0 } else { code };
        out.extend([
            0xb7,
            direction,
            code,
            0,
            0,
            serial % 8,
            0,
            payload.len() as u8,
        ]);
        out.extend_from_slice(payload);
        data = rest;
    }
}
