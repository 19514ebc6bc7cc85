//! The bytes that both ends send, as in `vectors/link/`. Header blocks there are literal heads: the learning of
//! templates is not part of the protocol.

use std::fmt::Write as _;
use std::path::PathBuf;

use super::super::super::frame::HEAD_BYTES;
use super::*;

/// A frame, and whether the client sends it.
type Said = (bool, Vec<u8>);

/// Two ends whose frames are all recorded.
struct Script {
    pair: SessionPair,
    said: Vec<Said>,
    text: String,
}

impl Script {
    fn new(client: LinkLimits, server: LinkLimits) -> Self {
        Self {
            pair: SessionPair::unconnected(client, server),
            said: Vec::new(),
            text: String::new(),
        }
    }

    /// After both HELLOs.
    fn greeted(client: LinkLimits) -> Self {
        let mut script = Self::new(client, LinkLimits::INITIAL);
        script.pair.connect();
        script.client();
        script.server();
        script
    }

    fn note(&mut self, text: &str) {
        let _ = writeln!(self.text, "\n# {text}");
    }

    /// The client sends all it has, and the server receives it.
    fn client(&mut self) {
        let bytes = self.client_in_vain();
        self.pair.server_takes(&bytes).expect("a client");
    }

    /// The same, but the server does not receive it.
    fn client_in_vain(&mut self) -> Vec<u8> {
        // Templates that an encoder has learnt are not shown.
        let bytes = self.pair.client_bytes();
        self.write(true, &bytes);
        bytes
    }

    fn server(&mut self) {
        let bytes = self.server_in_vain();
        self.pair.client_takes(&bytes).expect("a server");
        self.pair.server.encoder = literal();
    }

    fn server_in_vain(&mut self) -> Vec<u8> {
        let bytes = self.pair.server_bytes();
        self.write(false, &bytes);
        bytes
    }

    fn write(&mut self, client: bool, mut bytes: &[u8]) {
        while let Some((head, rest)) = bytes.split_first_chunk::<HEAD_BYTES>() {
            let parsed = Head::parse(head).expect("a head");
            let (payload, rest) = rest.split_at(parsed.length.into());
            let frame = [&head[..], payload].concat();
            let _ = write!(
                self.text,
                "{} {:02x} {:02x} {:02x} {} {}",
                if client { '>' } else { '<' },
                head[0],
                head[1],
                head[2],
                hex(&head[3..6]),
                hex(&head[6..])
            );
            for line in payload.chunks(32) {
                let _ = write!(self.text, "\n  {}", hex(line));
            }
            let _ = writeln!(self.text, "   # {:?}", parsed.kind);
            self.said.push((client, frame));
            bytes = rest;
        }
    }

    fn open(&mut self, wants_answer: bool) -> Serial {
        self.pair.client.encoder = literal();
        let client = &mut self.pair.client;
        client
            .open(0, DESTINATION, REQUEST, wants_answer)
            .expect("a stream")
    }
}

fn literal() -> Encoder {
    Encoder::new(&HeadLimits {
        templates: 0,
        ..HeadLimits::DEFAULT
    })
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

fn small() -> LinkLimits {
    LinkLimits {
        stream_window: 1024,
        grown_window: 0,
        max_frame: 1024,
        ..LinkLimits::INITIAL
    }
}

fn hello() -> Script {
    let mut script = Script::new(LinkLimits::INITIAL, LinkLimits::INITIAL);
    script.pair.connect();
    script.note("A client begins a session.");
    script.client();
    script.note("The server gives it a token.");
    script.server();
    script
}

fn exchange() -> Script {
    let mut script = Script::greeted(LinkLimits::INITIAL);
    script.note("The request has no body: it is one frame.");
    let one = script.open(true);
    script.pair.client.end(one);
    script.client();
    script.note("The response is one frame, too: block and body.");
    let server = &mut script.pair.server;
    assert_eq!(server.answer(one, 0, Code::OK, RESPONSE), Ok(()));
    server.send(one, b"hello");
    assert!(server.end(one));
    script.server();
    script.note(
        "A request whose body comes later, an interim response, and a response whose body does.",
    );
    let two = script.open(true);
    script.client();
    let server = &mut script.pair.server;
    assert_eq!(server.answer(two, 0, Code::OK, CONTINUE), Ok(()));
    script.server();
    script.pair.client.send(two, b"question");
    script.pair.client.end(two);
    script.client();
    let server = &mut script.pair.server;
    assert_eq!(server.answer(two, 0, Code::LOCAL, RESPONSE), Ok(()));
    script.server();
    script.pair.server.send(two, b"hel");
    script.server();
    script.pair.server.send(two, b"lo");
    script.server();
    script.pair.server.end(two);
    script.server();
    script
}

fn one_way() -> Script {
    let mut script = Script::greeted(LinkLimits::INITIAL);
    script.note("This message wants no answer.");
    let one = script.open(false);
    script.pair.client.send(one, b"news");
    assert!(script.pair.client.end(one));
    script.client();
    script
}

fn flow() -> Script {
    let mut script = Script::greeted(LinkLimits::INITIAL);
    script.note("A flow with its first bytes.");
    let flow = script.pair.client.open_flow(DESTINATION).expect("a flow");
    script.pair.client.send(flow, b"EHLO");
    script.client();
    script.pair.server.send(flow, b"\x00250 OK");
    script.server();
    script.note("Each end says that it has sent everything.");
    script.pair.client.end(flow);
    script.client();
    script.pair.server.end(flow);
    script.server();
    script
}

fn parts() -> Script {
    let mut script = Script::greeted(small());
    script.note("A response's head of 1,200 bytes, for a client that takes frames of 1,024.");
    let one = script.open(true);
    script.pair.client.end(one);
    script.client();
    let fill = "x".repeat(1200 - b"HTTP/1.1 200 OK\r\nX-Fill: \r\n\r\n".len());
    let head = format!("HTTP/1.1 200 OK\r\nX-Fill: {fill}\r\n\r\n");
    let server = &mut script.pair.server;
    let answered = server.answer(one, 0, Code::OK, head.as_bytes());
    assert_eq!(answered, Ok(()));
    server.send(one, b"hello");
    server.end(one);
    script.server();
    script
}

fn windows() -> Script {
    let mut script = Script::greeted(small());
    let one = script.open(true);
    script.pair.client.end(one);
    script.client();
    script.note("A client takes 1,024 bytes of each stream. A longer body stops there.");
    let server = &mut script.pair.server;
    assert_eq!(server.answer(one, 0, Code::OK, RESPONSE), Ok(()));
    let body = [b'b'; 1500];
    let sent = server.send(one, &body);
    assert_eq!(sent, 1024);
    script.server();
    script.note("The client has forwarded 700 of these bytes.");
    script.pair.client.consumed(one, 700);
    script.client();
    script.pair.server.send(one, &body[sent..]);
    script.pair.server.end(one);
    script.server();
    script
}

fn reset() -> Script {
    let mut script = Script::greeted(LinkLimits::INITIAL);
    script.note("The client cancels the request. The server's side is still open, so it resets the stream, too.");
    let one = script.open(true);
    script.client();
    script.pair.client.reset(one, Code::CANCELLED);
    script.client();
    script.server();
    script.note("A server does not want the rest of a request: first its answer, which is whole.");
    let two = script.open(true);
    script.client();
    let server = &mut script.pair.server;
    assert_eq!(server.answer(two, 0, Code::OK, RESPONSE), Ok(()));
    server.send(two, b"hello");
    server.end(two);
    server.reset(two, Code::CANCELLED);
    script.server();
    script.client();
    script.note("Both at once: neither answers the other.");
    let three = script.open(true);
    script.client();
    script.pair.client.reset(three, Code::CANCELLED);
    script.pair.server.reset(three, Code::INTERNAL);
    let bytes = script.server_in_vain();
    script.client();
    script.pair.client_takes(&bytes).expect("a reset");
    assert!(!script.pair.client.wants_transmit() && !script.pair.server.wants_transmit());
    script
}

fn refused() -> Script {
    let one_stream = LinkLimits {
        max_streams: 1,
        ..LinkLimits::INITIAL
    };
    let mut script = Script::new(LinkLimits::INITIAL, one_stream);
    script.pair.connect();
    script.note("A client prepares two streams before it knows that the server takes one.");
    let one = script.open(true);
    script.pair.client.end(one);
    script.open(true);
    script.client();
    script.server();
    script.client();
    script.note("The second stream is refused, so the client stops sending it.");
    script.server();
    script.client();
    script
}

fn going_away() -> Script {
    let mut script = Script::greeted(LinkLimits::INITIAL);
    let one = script.open(true);
    script.pair.client.end(one);
    script.client();
    script.note("A server is going away: the stream that is open is served, a later one is not.");
    script.pair.server.go_away(Code::EXPIRED);
    let bytes = script.server_in_vain();
    let two = script.open(true);
    script.pair.client.end(two);
    script.client();
    script.pair.client_takes(&bytes).expect("a farewell");
    let server = &mut script.pair.server;
    assert_eq!(server.answer(one, 0, Code::OK, RESPONSE), Ok(()));
    server.send(one, b"hello");
    server.end(one);
    script.server();
    script
}

fn another() -> Script {
    let mut script = Script::greeted(LinkLimits::INITIAL);
    script.note(
        "A server asks for another link instead of this one. What comes meanwhile is served.",
    );
    script.pair.server.ask_for(Another::Instead);
    let bytes = script.server_in_vain();
    let one = script.open(true);
    script.pair.client.end(one);
    script.client();
    script.pair.client_takes(&bytes).expect("a question");
    let server = &mut script.pair.server;
    assert_eq!(server.answer(one, 0, Code::OK, RESPONSE), Ok(()));
    server.send(one, b"hello");
    server.end(one);
    script.server();
    script
}

fn heartbeat() -> Script {
    let mut script = Script::greeted(LinkLimits::INITIAL);
    let one = script.open(true);
    script.pair.client.end(one);
    script.client();
    script.note("Half a second after the request the server acknowledges it.");
    script.pair.tick(500);
    script.server();
    script.note("After a second without a byte each end sends a heartbeat.");
    script.pair.tick(1000);
    let from_server = script.server_in_vain();
    script.client();
    script.pair.client_takes(&from_server).expect("a heartbeat");
    script.server();
    script.client();
    script
}

fn resumed() -> Script {
    let mut script = Script::greeted(LinkLimits::INITIAL);
    let one = script.open(true);
    script.pair.client.end(one);
    script.client();
    script.note("The response is lost on its way, and so is a second request.");
    let server = &mut script.pair.server;
    assert_eq!(server.answer(one, 0, Code::OK, RESPONSE), Ok(()));
    server.send(one, b"hello");
    server.end(one);
    script.server_in_vain();
    let two = script.open(true);
    script.pair.client.end(two);
    script.client_in_vain();
    script.note(
        "On another connection each end says how far the other one has come, and sends again.",
    );
    script.pair.disconnect();
    script.pair.connect();
    script.client();
    script.server();
    script.client();
    script
}

fn forgotten() -> Script {
    let mut script = Script::greeted(LinkLimits::INITIAL);
    let one = script.open(true);
    script.pair.client.end(one);
    script.client();
    script.note("The server restarts. The client asks for its session and is given another one.");
    script.pair.disconnect();
    let anew = Session::server(Token([8; 16]), LinkLimits::INITIAL);
    script.pair.server = anew;
    script.pair.connect();
    script.client();
    script.server();
    let lost = Told::Lost(1, true);
    assert!(script.pair.told_client().contains(&lost));
    script.note("Serials count on, offsets begin anew.");
    let two = script.open(true);
    script.pair.client.end(two);
    script.client();
    script
}

const CONTINUE: &[u8] = b"HTTP/1.1 100 Continue\r\n\r\n";

type Scene = (&'static str, fn() -> Script);

const SCRIPTS: [Scene; 13] = [
    ("hello", hello),
    ("exchange", exchange),
    ("one-way", one_way),
    ("flow", flow),
    ("parts", parts),
    ("windows", windows),
    ("reset", reset),
    ("refused", refused),
    ("going-away", going_away),
    ("another", another),
    ("heartbeat", heartbeat),
    ("resumed", resumed),
    ("forgotten", forgotten),
];

fn path(name: &str) -> PathBuf {
    let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/vectors/link");
    PathBuf::from(folder).join(name).with_extension("txt")
}

fn whole(text: &str) -> String {
    let format = "# `>` the client says, `<` the server; a frame's head, then its payload, in hexadecimal digits.";
    format!("{format}\n{text}")
}

/// The frames in a vector file.
fn read(text: &str) -> Vec<Said> {
    let mut said = Vec::new();
    for line in text.lines() {
        let (line, _) = line.split_once('#').unwrap_or((line, ""));
        let digits = match (line.strip_prefix('>'), line.strip_prefix('<')) {
            (Some(rest), _) => {
                said.push((true, Vec::new()));
                rest
            }
            (_, Some(rest)) => {
                said.push((false, Vec::new()));
                rest
            }
            _ => line,
        };
        let digits: Vec<u8> = digits.bytes().filter(|byte| *byte != b' ').collect();
        for two in digits.chunks(2) {
            let two = std::str::from_utf8(two).expect("digits");
            let byte = u8::from_str_radix(two, 16).expect("two digits");
            said.last_mut().expect("a frame begins").1.push(byte);
        }
    }
    said
}

#[test]
fn both_ends_say_what_the_vectors_have_and_understand_it() {
    for (name, script) in SCRIPTS {
        let said = script().said;
        let text = std::fs::read_to_string(path(name)).expect("a file");
        let expected = read(&text);
        for (at, (said, expected)) in said.iter().zip(&expected).enumerate() {
            assert_eq!(said, expected, "{name}: frame {at}");
        }
        assert_eq!(said.len(), expected.len(), "{name}");
    }
    let folder = path("hello").parent().expect("a folder").read_dir();
    let files = folder.expect("vectors").flatten();
    let files = files.filter(|entry| entry.path().is_file());
    assert_eq!(files.count(), SCRIPTS.len());
}

#[test]
#[ignore = "writes the vectors anew"]
fn the_vectors_are_written() {
    for (name, script) in SCRIPTS {
        let path = path(name);
        std::fs::create_dir_all(path.parent().expect("a folder")).expect("a folder");
        std::fs::write(path, whole(&script().text)).expect("a file");
    }
}
