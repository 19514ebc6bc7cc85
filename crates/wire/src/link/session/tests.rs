use super::super::LinkError;
use super::*;

mod another;
mod exchanges;
mod rules;
mod vectors;
mod windows;

/// A call that an owner received.
#[derive(Debug, Clone, PartialEq, Eq)]
enum Told {
    Opened(u32, Opened, Vec<u8>),
    Head(u32, u8, Vec<u8>),
    Data(u32, Vec<u8>),
    Ended(u32),
    Reset(u32, u8),
    Writable(u32),
    Over(u32),
    GoingAway(u8, u32),
    Asked(Another),
    Lost(u32, bool),
}

#[derive(Debug, Default)]
struct Owner(Vec<Told>);

impl Streams for Owner {
    fn opened(&mut self, serial: Serial, what: Opened, destination: &[u8], _: Option<u32>) {
        let destination = destination.to_vec();
        self.0
            .push(Told::Opened(serial.number(), what, destination));
    }
    fn head(&mut self, serial: Serial, code: Code, head: &[u8]) {
        self.0
            .push(Told::Head(serial.number(), code.0, head.to_vec()));
    }
    fn data(&mut self, serial: Serial, bytes: &[u8]) {
        self.0.push(Told::Data(serial.number(), bytes.to_vec()));
    }
    fn ended(&mut self, serial: Serial) {
        self.0.push(Told::Ended(serial.number()));
    }
    fn reset(&mut self, serial: Serial, code: Code) {
        self.0.push(Told::Reset(serial.number(), code.0));
    }
    fn writable(&mut self, serial: Serial) {
        self.0.push(Told::Writable(serial.number()));
    }
    fn over(&mut self, serial: Serial) {
        self.0.push(Told::Over(serial.number()));
    }
    fn going_away(&mut self, code: Code, last: Option<Serial>) {
        let last = last.map_or(0, Serial::number);
        self.0.push(Told::GoingAway(code.0, last));
    }
    fn asked(&mut self, what: Another) {
        self.0.push(Told::Asked(what));
    }
    fn lost(&mut self, serial: Serial, was_sent: bool) {
        self.0.push(Told::Lost(serial.number(), was_sent));
    }
}

const TOKEN: Token = Token([7; 16]);
const REQUEST: &[u8] = b"GET / HTTP/1.1\r\nHost: web\r\n\r\n";
const RESPONSE: &[u8] = b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\n";
const DESTINATION: &[u8] = b"web.shop";

/// Two ends with their owners, connected without delay.
struct SessionPair {
    client: Session,
    server: Session,
    at_client: Owner,
    at_server: Owner,
    now_ms: u64,
}

impl SessionPair {
    /// Both ends, connected, after both HELLOs.
    fn new(client: LinkLimits, server: LinkLimits) -> Self {
        let mut pair = Self::unconnected(client, server);
        pair.connect();
        pair.pass();
        pair
    }

    fn unconnected(client: LinkLimits, server: LinkLimits) -> Self {
        Self {
            client: Session::client(client),
            server: Session::server(TOKEN, server),
            at_client: Owner::default(),
            at_server: Owner::default(),
            now_ms: 1000,
        }
    }

    fn connect(&mut self) {
        self.client.connected(self.now_ms);
        self.server.connected(self.now_ms);
    }

    fn disconnect(&mut self) {
        self.client.disconnected(self.now_ms);
        self.server.disconnected(self.now_ms);
    }

    fn client_bytes(&mut self) -> Vec<u8> {
        sent(&mut self.client, self.now_ms)
    }

    fn server_bytes(&mut self) -> Vec<u8> {
        sent(&mut self.server, self.now_ms)
    }

    fn server_takes(&mut self, bytes: &[u8]) -> Result<(), LinkError> {
        self.server.receive(bytes, self.now_ms, &mut self.at_server)
    }

    fn client_takes(&mut self, bytes: &[u8]) -> Result<(), LinkError> {
        self.client.receive(bytes, self.now_ms, &mut self.at_client)
    }

    /// Exchanges bytes until neither end has more to send.
    fn pass(&mut self) {
        while self.client.wants_transmit() || self.server.wants_transmit() {
            let bytes = self.client_bytes();
            self.server_takes(&bytes).expect("what a client may say");
            let bytes = self.server_bytes();
            self.client_takes(&bytes).expect("what a server may say");
        }
    }

    fn tick(&mut self, ms: u64) -> (Verdict, Verdict) {
        self.now_ms += ms;
        let client = self.client.tick(self.now_ms, &mut self.at_client);
        let server = self.server.tick(self.now_ms, &mut self.at_server);
        (client, server)
    }

    fn told_client(&mut self) -> Vec<Told> {
        std::mem::take(&mut self.at_client.0)
    }

    fn told_server(&mut self) -> Vec<Told> {
        std::mem::take(&mut self.at_server.0)
    }
}

fn sent(session: &mut Session, now_ms: u64) -> Vec<u8> {
    let mut bytes = Vec::new();
    session.transmit(&mut bytes, usize::MAX, now_ms);
    bytes
}

fn pair() -> SessionPair {
    SessionPair::new(LinkLimits::INITIAL, LinkLimits::INITIAL)
}

const EXCHANGE: Opened = Opened::Exchange { wants_answer: true };
