//! Two ends of a link without a network between them, for measurements.

use heddle_wire::link::frame::{Code, Serial};
use heddle_wire::link::hello::{LinkLimits, Token};
use heddle_wire::link::session::{Opened, Session, Streams};

/// An owner that only counts its calls.
#[derive(Default)]
struct Owner {
    told: u64,
}

impl Streams for Owner {
    fn opened(&mut self, _: Serial, _: Opened, _: &[u8], _: Option<u32>) {
        self.told += 1;
    }
    fn head(&mut self, _: Serial, _: Code, _: &[u8]) {
        self.told += 1;
    }
    fn data(&mut self, _: Serial, _: &[u8]) {
        self.told += 1;
    }
    fn ended(&mut self, _: Serial) {
        self.told += 1;
    }
    fn reset(&mut self, _: Serial, _: Code) {}
    fn writable(&mut self, _: Serial) {}
    fn over(&mut self, _: Serial) {
        self.told += 1;
    }
    fn going_away(&mut self, _: Code, _: Option<Serial>) {}
    fn lost(&mut self, _: Serial, _: bool) {}
}

/// Both ends, and the bytes between them.
pub(super) struct Ends {
    client: Session,
    server: Session,
    owner: Owner,
    bytes: Vec<u8>,
    now_ms: u64,
}

impl Ends {
    /// Two ends after both HELLOs.
    pub(super) fn new() -> Self {
        let mut ends = Self {
            client: Session::client(LinkLimits::INITIAL),
            server: Session::server(Token([1; 16]), LinkLimits::INITIAL),
            owner: Owner::default(),
            bytes: Vec::with_capacity(1 << 20),
            now_ms: 0,
        };
        ends.client.connected(0);
        ends.server.connected(0);
        ends.pass();
        ends
    }

    /// Exchanges the pending output of both ends.
    fn pass(&mut self) {
        let now_ms = self.now_ms;
        self.bytes.clear();
        self.client.transmit(&mut self.bytes, usize::MAX, now_ms);
        let taken = self.server.receive(&self.bytes, now_ms, &mut self.owner);
        assert!(taken.is_ok(), "a client");
        self.bytes.clear();
        self.server.transmit(&mut self.bytes, usize::MAX, now_ms);
        let taken = self.client.receive(&self.bytes, now_ms, &mut self.owner);
        assert!(taken.is_ok(), "a server");
    }

    /// A request and its response, between the two owners: two frames, and an ACK now and then.
    pub(super) fn exchange(&mut self, request: &[u8], response: &[u8], body: &[u8]) {
        let opened = self.client.open(1, b"web.shop", request, true);
        let serial = opened.expect("a stream");
        self.client.end(serial);
        let now_ms = self.now_ms;
        self.bytes.clear();
        self.client.transmit(&mut self.bytes, usize::MAX, now_ms);
        let taken = self.server.receive(&self.bytes, now_ms, &mut self.owner);
        assert!(taken.is_ok(), "a request");
        let answered = self.server.answer(serial, 1, Code::OK, response);
        assert!(answered.is_ok(), "a response");
        assert_eq!(self.server.send(serial, body), body.len());
        assert!(self.server.end(serial));
        self.bytes.clear();
        self.server.transmit(&mut self.bytes, usize::MAX, now_ms);
        let taken = self.client.receive(&self.bytes, now_ms, &mut self.owner);
        assert!(taken.is_ok() && self.client.open_streams() == 0, "over");
    }

    /// Opens a flow, which stays open at both ends.
    #[allow(dead_code, reason = "not every example counts them")]
    pub(super) fn flow(&mut self) -> Serial {
        let flow = self.client.open_flow(b"db.shop").expect("a flow");
        self.pass();
        flow
    }

    /// Sends `bytes` over a flow. The reader consumes them at once.
    #[allow(dead_code, reason = "not every example counts them")]
    pub(super) fn carry(&mut self, flow: Serial, bytes: &[u8]) {
        let mut rest = bytes;
        while !rest.is_empty() {
            let taken = self.client.send(flow, rest);
            rest = &rest[taken..];
            self.pass();
            self.server.consumed(flow, taken);
        }
        self.pass();
    }

    /// Advances the time of both ends, and exchanges their output.
    #[allow(dead_code, reason = "not every example counts it")]
    pub(super) fn wait(&mut self, ms: u64) {
        self.now_ms += ms;
        self.client.tick(self.now_ms, &mut self.owner);
        self.server.tick(self.now_ms, &mut self.owner);
        self.pass();
    }

    /// Heap memory of both sessions in bytes, without header templates.
    #[allow(dead_code, reason = "not every example counts it")]
    pub(super) fn heap_bytes(&self) -> [usize; 2] {
        [self.client.heap_bytes(), self.server.heap_bytes()]
    }
}
