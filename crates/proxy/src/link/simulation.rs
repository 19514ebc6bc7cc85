//! Random streams over both ends of a link: every way to end a stream, and its effect on the next stream of the same
//! slot.
//!
//! ```text
//!   Caller ─ Stream ─ Link ══ up ═══▶ Link ─ Stream ─ Server, which takes one request after the other
//!                          ◀═ down ══
//! ```
//!
//! The sessions and streams are the real ones; callers and servers send, read, end and let go like Collaborators. Each
//! request is served once and completely, or its caller learns of the failure; an answer always belongs to its own
//! request.

use std::collections::HashMap;
use std::rc::Rc;
use std::task::{Context, Poll, Waker};

use heddle_wire::buffer::{Chain, Pool};
use heddle_wire::link::session::simulation::Choices;
use heddle_wire::link::{Code, LinkLimits, Opened, Serial, Session, Streams, Token, Verdict};

use super::failure::said;
use super::hold::Holds;
use super::stream::{Stream, StreamTarget};
use super::{Key, Link, LinkEnd, Slots};
use crate::failure::Reason;
use crate::io::{Message, SideError, SideResult};

/// Limit of the bytes of a body: more than a window.
const LONGEST: usize = 100_000;
/// Limit of steps in which everything has to end once nothing new is started.
const PATIENCE: usize = 200_000;

fn link(end: LinkEnd, session: Session, pool: &Pool) -> Rc<Link> {
    let hold = Holds::new().of(&end, pool);
    Rc::new(Link::new(end, session, Slots::new(hold), 0))
}

/// Passes the events of an end's session on, like [`super::receiver`].
struct Teller<'a> {
    link: &'a Rc<Link>,
    pool: &'a Pool,
    begun: Vec<Server>,
}

impl Streams for Teller<'_> {
    fn opened(&mut self, serial: Serial, _: Opened, _: &[u8], id: Option<u32>) {
        if let Some(slot) = self.link.slots.borrow_mut().welcome(serial, id) {
            let stream = Stream::at(self.link, slot, true);
            self.begun.push(Server::new(stream));
        }
    }

    fn head(&mut self, serial: Serial, _: Code, head: &[u8]) {
        let mut slots = self.link.slots.borrow_mut();
        slots.head(serial, self.pool, head).expect("a block");
    }

    fn data(&mut self, serial: Serial, bytes: &[u8]) {
        let mut slots = self.link.slots.borrow_mut();
        slots.data(serial, self.pool, bytes).expect("a block");
    }

    fn ended(&mut self, serial: Serial) {
        self.link.slots.borrow_mut().ended(serial);
    }

    fn reset(&mut self, serial: Serial, code: Code) {
        let mut slots = self.link.slots.borrow_mut();
        slots.failed(serial, said(code));
    }

    fn writable(&mut self, _: Serial) {}
    fn over(&mut self, _: Serial) {}
    fn going_away(&mut self, _: Code, _: Option<Serial>) {}
    fn lost(&mut self, _: Serial, _: bool) {}
}

/// A message with a head that names its id, and a body of `length` bytes.
fn message(begin: &str, id: usize, length: usize) -> Vec<u8> {
    let mut message = format!("{begin}\r\nX-Id: {id} {length}\r\n\r\n").into_bytes();
    message.resize(message.len() + length, id as u8);
    message
}

fn answer(id: usize, length: usize) -> Vec<u8> {
    message("HTTP/1.1 200 OK", id, length)
}

/// The id and the body's length that a complete head names, and the head's own length.
fn parse(heard: &[u8]) -> Option<(usize, usize, usize)> {
    let end = heard.windows(4).position(|four| four == b"\r\n\r\n")? + 4;
    let head = std::str::from_utf8(&heard[..end]).expect("a head is text");
    let (_, named) = head
        .split_once("X-Id: ")
        .expect("every head names its message");
    let (id, length) = named.trim().split_once(' ').expect("two numbers");
    Some((id.parse().ok()?, length.parse().ok()?, end))
}

/// The received bytes of a stream, and the bytes that are still to be written.
struct EndOfStream {
    stream: Stream,
    heard: Vec<u8>,
    outbox: Chain,
    /// The other end receives nothing more.
    is_deaf: bool,
}

impl EndOfStream {
    fn new(stream: Stream) -> Self {
        EndOfStream {
            stream,
            heard: Vec::new(),
            outbox: Chain::new(),
            is_deaf: false,
        }
    }

    /// Sends a message as far as there is room, and keeps the rest.
    fn say(&mut self, pool: &Pool, message: &[u8]) {
        let cx = &mut Context::from_waker(Waker::noop());
        let kept = (pool, &mut self.outbox);
        let head = message.windows(4).position(|four| four == b"\r\n\r\n");
        let (head, body) = message.split_at(head.expect("a head") + 4);
        let sent = (self.stream).send(cx, kept, &Message::from(head), &Chain::new(), 0);
        self.is_deaf |= sent.is_err();
        self.outbox.extend_from_slice(pool, body).expect("a block");
    }

    /// Whether everything was sent, or can no longer be sent.
    fn flushed(&mut self) -> bool {
        let cx = &mut Context::from_waker(Waker::noop());
        while !self.is_deaf && !self.outbox.is_empty() {
            match self.stream.poll_write(cx, &self.outbox, usize::MAX) {
                Poll::Ready(Ok(sent)) => self.outbox.consume(sent),
                Poll::Ready(Err(_)) => self.is_deaf = true,
                Poll::Pending => return false,
            }
        }
        true
    }

    /// Reads. Returns how the stream ended, if it did.
    fn read(&mut self) -> Option<SideResult<()>> {
        let cx = &mut Context::from_waker(Waker::noop());
        let mut inbox = Chain::new();
        match self.stream.poll_fill(cx, &mut inbox, 8_192) {
            Poll::Ready(Ok(0)) => return Some(Ok(())),
            Poll::Ready(Err(error)) => return Some(Err(error)),
            Poll::Ready(Ok(_)) => inbox.runs().for_each(|run| self.heard.extend(run)),
            Poll::Pending => {}
        }
        None
    }
}

/// One request.
struct SimClient {
    id: usize,
    length: usize,
    half: EndOfStream,
    ended: bool,
}

/// How a server handles a request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum ServerPlan {
    /// Answers once the whole request has arrived, and takes the next one.
    Serve,
    /// Answers at once, and reads until the other end has ended.
    Early,
    /// Answers after the other end has ended, like a protocol after an upgrade.
    Switch,
    /// Drops the stream.
    Drop,
    /// Drops the stream with the code for a cut.
    Cut,
}

/// A server that takes one request after the other.
struct Server {
    half: EndOfStream,
    request: Option<(usize, usize, ServerPlan)>,
    answered: bool,
    ended: bool,
}

impl Server {
    fn new(stream: Stream) -> Self {
        Server {
            half: EndOfStream::new(stream),
            request: None,
            answered: false,
            ended: false,
        }
    }
}

struct BothEnds {
    chance: Choices<'static>,
    pool: Pool,
    ends: [Rc<Link>; 2],
    /// Bytes in transit, up and down.
    ways: [Vec<u8>; 2],
    now_ms: u64,
    callers: Vec<SimClient>,
    servers: Vec<Server>,
    /// The requests that a server has read, and whether each was answered completely.
    fates: HashMap<usize, bool>,
    begun: usize,
    /// Requests that a server took after an earlier one and answered completely.
    reused: usize,
    whole: usize,
}

impl BothEnds {
    fn new(seed: u64) -> Self {
        let pool = Pool::new(1024, 100_000);
        let name = |name| heddle_model::ServiceAccountName::new("test", name).expect("a name");
        let key = Key {
            caller: Some(name("shop")),
            called: name("echo"),
            node: ([127, 0, 0, 1], 1).into(),
        };
        let called = LinkEnd::Called {
            caller: heddle_model::SpiffeId::workload(
                heddle_model::Mesh::default().trust_domain,
                name("shop"),
            ),
            called: name("echo"),
            peer: ([127, 0, 0, 1], 2).into(),
        };
        let client = Session::client(LinkLimits::INITIAL);
        let server = Session::server(Token([7; 16]), LinkLimits::INITIAL);
        let ends = [
            link(LinkEnd::Caller(key), client, &pool),
            link(called, server, &pool),
        ];
        for end in &ends {
            end.session.borrow_mut().connected(0);
        }
        BothEnds {
            chance: Choices::seed(seed),
            pool,
            ends,
            ways: Default::default(),
            now_ms: 0,
            callers: Vec::new(),
            servers: Vec::new(),
            fates: HashMap::new(),
            begun: 0,
            reused: 0,
            whole: 0,
        }
    }

    fn open(&mut self) {
        let id = self.begun;
        self.begun += 1;
        let length = match self.chance.below(3) {
            0 => 0,
            1 => self.chance.below(300),
            _ => self.chance.below(LONGEST),
        };
        let destination = format!("service {}", self.chance.below(2)).into_bytes();
        let target = StreamTarget {
            destination: destination.into(),
            scope: 0,
        };
        let mut half = EndOfStream::new(Stream::unopened(&self.ends[0], target, true));
        half.say(&self.pool, &message("POST / HTTP/1.1", id, length));
        self.callers.push(SimClient {
            id,
            length,
            half,
            ended: false,
        });
    }

    /// Continues a request; gives it up at random, if `may_leave`.
    fn call(&mut self, index: usize, may_leave: bool) {
        let caller = &mut self.callers[index];
        let half = &mut caller.half;
        if half.flushed() && !half.is_deaf && !caller.ended {
            caller.ended = true;
            half.stream.end_message();
        }
        let over = half.read();
        match over {
            None if may_leave && self.chance.one_in(40) => {
                let cut = self.chance.one_in(2);
                half.stream.reset_on_close(cut);
            }
            None => return,
            Some(Ok(())) => {
                let expected = answer(caller.id, caller.length);
                assert!(
                    half.heard == expected,
                    "the answer to {} is its own",
                    caller.id
                );
                assert_eq!(self.fates.get(&caller.id), Some(&true));
                self.whole += 1;
                if self.chance.one_in(2) {
                    half.stream.detach(Chain::new());
                }
            }
            Some(Err(error)) => {
                let unseen = matches!(&error, SideError::Stream(failure) if failure.of_request() == Reason::NodeConnectFailed);
                match self.fates.get(&caller.id) {
                    None => assert!(unseen, "{}: no server has looked at it: {error}", caller.id),
                    Some(whole) => assert!(!whole && !unseen, "{}: {error}", caller.id),
                }
            }
        }
        self.callers.swap_remove(index);
    }

    /// Continues the present request of a server.
    fn serve(&mut self, index: usize, may_leave: bool) {
        let stays = self.serves(index, may_leave);
        if !stays {
            self.servers.swap_remove(index);
        }
    }

    fn serves(&mut self, index: usize, may_leave: bool) -> bool {
        let server = &mut self.servers[index];
        let half = &mut server.half;
        let over = half.read();
        let Some((id, length, plan)) = server.request else {
            let Some((id, length, end)) = parse(&half.heard) else {
                // Between two requests the server may leave, whatever is in transit.
                return over.is_none() && !(may_leave && self.chance.one_in(200));
            };
            half.heard.drain(..end);
            let plans = [
                ServerPlan::Serve,
                ServerPlan::Serve,
                ServerPlan::Early,
                ServerPlan::Switch,
                ServerPlan::Drop,
                ServerPlan::Cut,
            ];
            let plan = plans[self.chance.below(plans.len())];
            server.request = Some((id, length, plan));
            let again = self.fates.insert(id, false);
            assert_eq!(again, None, "{id} is served once");
            return true;
        };
        assert!(half.heard.len() <= length, "{id} ends where it does");
        assert!(
            half.heard.iter().all(|&byte| byte == id as u8),
            "a body is its own"
        );
        let is_due = match plan {
            ServerPlan::Drop => return false,
            ServerPlan::Cut => {
                half.stream.reset_on_close(true);
                return false;
            }
            ServerPlan::Early => true,
            ServerPlan::Serve => half.heard.len() == length,
            ServerPlan::Switch => matches!(over, Some(Ok(()))),
        };
        if is_due && !server.answered {
            server.answered = true;
            half.say(&self.pool, &answer(id, length));
        }
        if server.answered && !server.ended && half.flushed() {
            if half.is_deaf {
                return false;
            }
            server.ended = true;
            self.fates.insert(id, true);
            if plan == ServerPlan::Serve {
                half.stream.end_message();
                half.heard.clear();
                self.reused += 1;
                (server.request, server.answered, server.ended) = (None, false, false);
                return true;
            }
            half.stream.end();
        }
        // The server may or may not wait for the other end's end.
        match over {
            None => !(server.ended && may_leave && self.chance.one_in(20)),
            // It is read once more, as a task does whose other side has not ended yet.
            Some(Ok(())) => !server.ended || !self.chance.one_in(4),
            Some(Err(_)) => false,
        }
    }

    /// Carries bytes from one end to the other.
    fn carry(&mut self, from: usize, most: usize) {
        let (sender, receiver) = (&self.ends[from], &self.ends[1 - from]);
        let way = &mut self.ways[from];
        sender.session.borrow_mut().transmit(way, most, self.now_ms);
        let bytes: Vec<u8> = way.drain(..most.min(way.len())).collect();
        let mut teller = Teller {
            link: receiver,
            pool: &self.pool,
            begun: Vec::new(),
        };
        let mut session = receiver.session.borrow_mut();
        let received = session.receive(&bytes, self.now_ms, &mut teller);
        assert_eq!(received, Ok(()));
        assert_eq!(session.tick(self.now_ms, &mut teller), Verdict::GoOn);
        self.servers.append(&mut teller.begun);
    }

    fn step(&mut self, may_leave: bool) {
        self.now_ms += 1;
        match self.chance.below(8) {
            0 | 1 if !self.callers.is_empty() => {
                let index = self.chance.below(self.callers.len());
                self.call(index, may_leave);
            }
            2..5 if !self.servers.is_empty() => {
                let index = self.chance.below(self.servers.len());
                self.serve(index, may_leave);
            }
            _ => {
                let (from, most) = (self.chance.below(2), 1 + self.chance.below(20_000));
                self.carry(from, most);
            }
        }
    }

    fn run(mut self, requests: usize) -> (usize, usize) {
        while self.begun < requests {
            if self.callers.len() < 12 && self.chance.one_in(10) {
                self.open();
            }
            self.step(true);
        }
        let mut left = PATIENCE;
        while !self.callers.is_empty()
            || self.ends.iter().any(|end| !end.session.borrow().is_idle())
        {
            left -= 1;
            assert!(left > 0, "{} requests never end", self.callers.len());
            self.step(false);
        }
        // Only servers that wait for another request are left.
        assert!(!self.ends[0].slots.borrow().serve());
        self.servers.clear();
        for end in &self.ends {
            assert!(!end.slots.borrow().has_waiting());
        }
        assert_eq!(self.pool.blocks_in_use(), 0, "no block is left behind");
        (self.whole, self.reused)
    }
}

#[test]
fn however_a_stream_ends_the_next_of_its_slot_is_served() {
    let (mut whole, mut reused) = (0, 0);
    for seed in 0..20 {
        let ran = BothEnds::new(seed).run(150);
        whole += ran.0;
        reused += ran.1;
    }
    // The random choices have covered the interesting cases.
    assert!(
        whole > 1_000 && reused > 500,
        "{whole} whole, {reused} reused"
    );
}
