//! One end of a link: frames and streams in both directions, whatever becomes of connections.
//!
//! The owner brings bytes and the time, and is told what they mean; nothing here waits, dials or reads a
//! clock. `now_ms` is any clock that does not go back, the same one for all calls.
//!
//! # A session
//! ```text
//!                     connected                  HELLO heard
//!   client, server ──────────────▶ greeting ──────────────────▶ up ──┐
//!        (new)          ▲             │                              │ frames, ACK, heartbeats
//!                       │             │ disconnected                 │
//!                       │             ▼                              │
//!                       └────────── away ◀───────────────────────────┘
//!                    connected        │       disconnected; tick: PathDead, after 3 s without a sound
//!                                     │
//!                                     ▼
//!                                   over       tick: SessionOver, retention ended, or nothing to resume by;
//!                                              receive: an error; the owner: fail_all
//! ```
//! Nothing but its HELLO is sent by a client that has not heard the server's. Who resumes waits for the
//! other end's, which says from where to send again. A server that does not know the session any more says
//! so by another token: every stream is told to be [lost](Streams::lost), and a new session goes on in the
//! same `Session`.
//!
//! # A stream
//! ```text
//!   open, open_flow          answer, send            end, reset
//!   ─────────────▶ both send ─────────────▶ … ──────────────────▶ half ended ──the other end, too──▶ over
//!   ◀─── opened ──           ◀─ head, data ─        ◀ ended, reset
//! ```
//! Who resets a stream is told nothing more of it but [`over`](Streams::over). Whose stream is reset has
//! ended it, too. The end of both directions is told once, by [`over`](Streams::over) or by a call of the
//! owner's own that returns `true`; then the serial means nothing any more.
//!
//! # What the owner does
//! ```text
//!   read some bytes ──▶ receive ──▶ (told things) ──▶ answer, send, consumed, end…
//!   while wants_transmit and the socket takes bytes: transmit ──▶ write
//!   sleep until next_deadline ──▶ tick
//! ```
//! | of a connection | |
//! |---|---|
//! | [`connected`](Session::connected), [`disconnected`](Session::disconnected) | it is there, it is gone. A server first reads the client's [`Hello`](super::hello::Hello::parse), finds the session by its token (and the identities it is for) or makes one, then brings it all bytes, the HELLO's too |
//! | [`receive`](Session::receive) | an error: close the connection, [`fail_all`](Session::fail_all), drop the session |
//! | [`transmit`](Session::transmit) | while [`wants_transmit`](Session::wants_transmit); a little more often does no harm |
//! | [`tick`](Session::tick) | at [`next_deadline`](Session::next_deadline), after what has come was received. [`Verdict::PathDead`]: close, `disconnected`, dial again. [`Verdict::SessionOver`]: drop the session |
//! | **of streams** | |
//! | [`open`](Session::open), [`open_flow`](Session::open_flow) | at the client end, also before there is a connection |
//! | [`answer`](Session::answer) | at the server end, before `send`; more than once with interim responses |
//! | [`send`](Session::send) | takes what there is room for; less than all: [`writable`](Streams::writable) follows |
//! | [`consumed`](Session::consumed) | bytes that were told by [`data`](Streams::data) have left the owner's buffers |
//! | [`end`](Session::end), [`reset`](Session::reset) | `true`: over, nothing more is told of it |
//! | [`go_away`](Session::go_away) | at either end; when the session [is idle](Session::is_idle) the connection may be closed |
//! | [`ask_for`](Session::ask_for) | at the server end: the client is told to [open another link](Streams::asked), and all that it opens on this one is taken |
//!
//! A message that wants no answer is over for the client end once it was ended there. Whether it arrives is not
//! told.
//!
//! Bytes given to [`send`](Session::send) are framed at once and kept until the other end has them. What is
//! handed out by [`transmit`](Session::transmit) must be written in order or the connection given up. After
//! [`disconnected`](Session::disconnected) no byte of the old connection may be brought any more.
//!
//! Nothing is allocated for a stream, a frame or a head once the buffers have grown; they are freed when
//! the session was idle for a second.

mod another;
mod block;
mod clock;
mod owner;
mod receive;
mod replay;
#[cfg(any(test, feature = "simulation"))]
pub mod simulation;
mod streams;
mod transmit;

#[cfg(test)]
mod tests;

use std::collections::VecDeque;

use super::frame::{Code, FrameKind, HEAD_BYTES, Head, Serial};
use super::heads::{Decoder, Encoder, HeadLimits};
use super::hello::{LinkLimits, Token};
pub use another::Another;
use clock::Clock;
use replay::Replay;
use streams::{Stream, StreamTable, Waiting};

/// Longest destination of a stream, in bytes.
pub const MAX_DESTINATION_BYTES: usize = 1024;
/// Heads on one stream: interim responses, and the one after them.
pub const MAX_HEADS: u8 = 128;
/// Less room than this in the link's window is none: frames would be mostly heads.
const LEAST_ROOM: usize = 256;

/// What begins with a stream.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Opened {
    /// A request, and its response if one is wanted.
    Exchange {
        /// Without it nothing can be answered: the stream is over when the request is.
        wants_answer: bool,
    },
    /// Bytes in both directions.
    Flow,
}

/// What the owner of the streams is told, in the order in which it was sent.
pub trait Streams {
    /// The session goes on over another connection, with all that is open.
    fn resumed(&mut self) {}
    /// The other end has opened a stream. `destination_id` stands for this destination as long as the session
    /// lasts, if there is one.
    fn opened(
        &mut self,
        serial: Serial,
        what: Opened,
        destination: &[u8],
        destination_id: Option<u32>,
    );
    /// A head came: once on a stream that was opened here, before anything else; of a response once or, with
    /// interim ones, more often.
    fn head(&mut self, serial: Serial, code: Code, head: &[u8]);
    /// Bytes came. They count against the stream's window until they are [consumed](Session::consumed).
    fn data(&mut self, serial: Serial, bytes: &[u8]);
    /// The other end has sent everything.
    fn ended(&mut self, serial: Serial);
    /// The other end has given the stream up; [`over`](Self::over) follows.
    fn reset(&mut self, serial: Serial, code: Code);
    /// There may be room again after a send that took less than it was given, or an answer that had to wait.
    fn writable(&mut self, serial: Serial);
    /// Both directions have ended: the serial is free.
    fn over(&mut self, serial: Serial);
    /// The other end opens nothing more, or takes nothing after `last` (all that are later are
    /// reset with a code of their own).
    fn going_away(&mut self, code: Code, last: Option<Serial>);
    /// The server asks for another link. It takes what is opened on this one nevertheless.
    fn asked(&mut self, _for: Another) {}
    /// The session is lost, and the stream with it. Unless `was_sent` the other end has never seen
    /// anything of it.
    fn lost(&mut self, serial: Serial, was_sent: bool);
}

/// Why a stream cannot be opened, or a head not be sent.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum NoStream {
    /// As many are open as the other end allows.
    TooMany,
    /// The other end has to acknowledge something first.
    Full,
    /// One of the two ends is going away.
    GoingAway,
    /// The head or the destination is longer than the other end takes.
    TooLong,
    /// The session is over; or, of an answer: the stream takes none.
    Over,
}

/// What [`Session::tick`] found.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Verdict {
    /// Go on.
    GoOn,
    /// The other end is not heard: the connection is to be closed, and another one tried.
    PathDead,
    /// The session is over: every stream was told to be lost.
    SessionOver,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum End {
    Client,
    Server,
}

/// The connection there is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Path {
    /// None was ever there.
    New,
    /// None, since then.
    Away { since_ms: u64 },
    /// The other end's HELLO has not come.
    Greeting { since_ms: u64 },
    /// Both have said who they are.
    Up,
}

/// Events that are to be sent.
#[derive(Debug, Default, Clone, Copy)]
struct Pending {
    hello: bool,
    ack: bool,
    go_away: bool,
    heartbeat: bool,
    /// The number of one that is to be answered.
    heartbeat_answer: Option<u32>,
}

/// One end of a link.
#[derive(Debug)]
pub struct Session {
    end: End,
    ours: LinkLimits,
    theirs: LinkLimits,
    /// A server's own; a client's once it was told.
    token: Token,
    /// Both ends know of this session: it can be resumed.
    begun: bool,
    /// Nothing goes on here.
    over: bool,
    path: Path,
    /// When the last connection ended on which the other end was heard, until it is heard again.
    away_since_ms: Option<u64>,
    pending: Pending,
    clock: Clock,
    /// Why this end opens and takes nothing more.
    leaving: Option<Code>,
    peer_leaving: bool,
    /// A server's: the link that it has asked the client for.
    asks_for: Option<Another>,
    /// The client opens a link beside this one when it is asked for one.
    beside: bool,

    out: Replay,
    /// Bytes of sequenced frames that came.
    received: u64,
    /// How many of them the other end was told of.
    acknowledged: u64,

    streams: StreamTable,
    /// Streams of which the owner knows nothing.
    refused: usize,
    /// The last one that was opened.
    last: Option<Serial>,
    /// Those that wait for the link's window, longest first.
    blocked: VecDeque<Serial>,

    encoder: Encoder,
    decoder: Decoder,
    /// A head that came.
    head: Vec<u8>,
    /// A header block that goes.
    block: Vec<u8>,
    /// The beginning of a frame.
    partial: Vec<u8>,
    /// The beginning of a header block, and whose it is.
    parts: Vec<u8>,
    parts_of: Option<(Serial, bool)>,
}

impl Session {
    /// The end that calls. It takes what is within `ours`; out of bounds ones are brought into them.
    #[must_use]
    pub fn client(ours: LinkLimits) -> Self {
        Self::new(End::Client, Token::NONE, ours.for_client())
    }

    /// The end that is called, of a session to be known by `token`, which cannot be guessed. It takes what
    /// is within `ours`, and no less than [`LinkLimits::INITIAL`] but for how many streams.
    #[must_use]
    pub fn server(token: Token, ours: LinkLimits) -> Self {
        Self::new(End::Server, token, ours.for_server())
    }

    fn new(end: End, token: Token, ours: LinkLimits) -> Self {
        Self {
            end,
            ours,
            theirs: LinkLimits::INITIAL,
            token,
            begun: false,
            over: false,
            path: Path::New,
            away_since_ms: None,
            pending: Pending::default(),
            clock: Clock::default(),
            leaving: None,
            peer_leaving: false,
            asks_for: None,
            beside: false,
            out: Replay::default(),
            received: 0,
            acknowledged: 0,
            streams: StreamTable::default(),
            refused: 0,
            last: None,
            blocked: VecDeque::new(),
            encoder: Encoder::new(&head_limits(&LinkLimits::INITIAL)),
            decoder: Decoder::new(&head_limits(&ours)),
            head: Vec::new(),
            block: Vec::new(),
            partial: Vec::new(),
            parts: Vec::new(),
            parts_of: None,
        }
    }

    /// A connection is there: a HELLO is to be sent and one to be heard.
    pub fn connected(&mut self, now_ms: u64) {
        self.forget_connection();
        self.clock.connected(now_ms);
        // A server hears first from where to go on.
        self.pending.hello = self.end == End::Client;
        self.path = Path::Greeting { since_ms: now_ms };
    }

    /// The connection is gone; the session waits for another one. Whether it can is for
    /// [`tick`](Self::tick) to say, which is due at once if not.
    ///
    /// Connections on which the other end is not heard make it no younger.
    pub fn disconnected(&mut self, now_ms: u64) {
        self.forget_connection();
        let since_ms = *self.away_since_ms.get_or_insert(now_ms);
        self.path = Path::Away { since_ms };
    }

    /// Whether the other end's HELLO has come on the connection that there is.
    #[must_use]
    pub fn is_up(&self) -> bool {
        self.path == Path::Up
    }

    /// Since when the other end has not been heard, on the owner's clock: when the last connection ended on which it was,
    /// or, if it never was, the first one. `None` while it is.
    #[must_use]
    pub fn away_since_ms(&self) -> Option<u64> {
        self.away_since_ms
    }

    fn forget_connection(&mut self) {
        self.partial.clear();
        self.pending = Pending {
            // It may not have arrived.
            go_away: self.leaving.is_some() || self.asks_for.is_some(),
            ..Pending::default()
        };
        self.clock.disconnected();
    }

    /// What the session is found by: a client has it once the server was heard.
    #[must_use]
    pub fn token(&self) -> Option<Token> {
        (self.token != Token::NONE).then_some(self.token)
    }

    /// Whether another connection could go on with it.
    #[must_use]
    pub fn is_resumable(&self) -> bool {
        !self.over && (self.begun || !self.out.was_handed(0))
    }

    /// Whether no stream is open and the other end has all that was sent.
    #[must_use]
    pub fn is_idle(&self) -> bool {
        self.streams.is_empty() && self.out.is_empty()
    }

    /// Streams that are open at this end.
    #[must_use]
    pub fn open_streams(&self) -> usize {
        self.streams.len() - self.refused
    }

    /// Those of them that are flows.
    #[must_use]
    pub fn open_flows(&self) -> usize {
        self.streams.flows()
    }

    /// Bytes of heap that it holds, without those of header templates.
    #[must_use]
    pub fn heap_bytes(&self) -> usize {
        let buffers = [&self.head, &self.block, &self.partial, &self.parts];
        self.out.heap_bytes()
            + self.streams.heap_bytes()
            + self.blocked.capacity() * size_of::<Serial>()
            + buffers.map(Vec::capacity).iter().sum::<usize>()
    }

    /// Gives the session up: every stream is told to be lost.
    pub fn fail_all(&mut self, streams: &mut impl Streams) {
        self.lose(streams);
        self.over = true;
    }

    /// Tells of every stream that it is lost, and forgets all that was of the session.
    fn lose(&mut self, streams: &mut impl Streams) {
        let open = self.streams.iter().filter(|stream| !stream.refused);
        let mut open: Vec<_> = open
            .filter_map(|stream| Some((stream.first, stream.serial()?)))
            .collect();
        open.sort_unstable();
        for (first, serial) in open {
            streams.lost(serial, self.out.was_handed(first));
        }
        self.streams.clear();
        self.refused = 0;
        self.out.clear();
        self.received = 0;
        self.acknowledged = 0;
        self.blocked.clear();
        self.encoder = Encoder::new(&head_limits(&LinkLimits::INITIAL));
        self.decoder = Decoder::new(&head_limits(&self.ours));
        self.parts.clear();
        self.parts_of = None;
        self.clock.forget_waiting();
    }

    /// Frees buffers of a session that is idle.
    fn tidy(&mut self) {
        self.streams.clear();
        self.out.tidy();
        self.blocked = VecDeque::new();
        for buffer in [&mut self.head, &mut self.block] {
            *buffer = Vec::new();
        }
        // Of the other end's next frame something may have come.
        for buffer in [&mut self.parts, &mut self.partial] {
            if buffer.is_empty() {
                *buffer = Vec::new();
            }
        }
    }

    /// Whether there is anything to free when it is idle.
    fn is_untidy(&self) -> bool {
        let kept = [&self.parts, &self.partial];
        let kept = kept.iter().filter(|buffer| !buffer.is_empty());
        self.heap_bytes() > kept.map(|buffer| buffer.capacity()).sum()
    }

    /// Whether sequenced frames may go. Not before the other end was heard: if that cannot be reached after all,
    /// it is certain that nothing was done there.
    fn may_send(&self) -> bool {
        self.path == Path::Up
    }

    /// The link's window, in bytes.
    fn window(&self) -> usize {
        self.ours.link_window.min(self.theirs.link_window) as usize
    }

    /// Room in it for payloads.
    fn link_room(&self) -> usize {
        self.room_within(self.window())
    }

    /// Room for bytes of bodies and flows. The last eighth is for heads: however much is sent, exchanges begin
    /// and are answered.
    fn body_room(&self) -> usize {
        self.room_within(self.window() - self.window() / 8)
    }

    fn room_within(&self, window: usize) -> usize {
        match window.saturating_sub(self.out.unacknowledged()) {
            room if room < LEAST_ROOM => 0,
            room => room - HEAD_BYTES,
        }
    }

    /// Longest payload of a frame that goes. Whole frames fill records of TLS.
    fn longest_payload(&self) -> usize {
        self.theirs.max_frame.min(LinkLimits::INITIAL.max_frame) as usize - HEAD_BYTES
    }

    /// A head of a stream's frame that goes.
    fn frame(&self, kind: FrameKind, serial: Serial) -> Head {
        Head {
            response: self.end == End::Server,
            ..Head::new(kind, serial.number())
        }
    }

    /// A stream that begins now.
    fn new_stream(&self, serial: Serial) -> Stream {
        Stream {
            credit: self.theirs.stream_window,
            window: self.ours.stream_window,
            room: self.ours.stream_window,
            first: self.out.end(),
            ..Stream::new(serial)
        }
    }

    /// Has a stream wait for the link's window, with a head or with bytes.
    fn wait_for_link(&mut self, serial: Serial, what: Waiting) {
        let Some(stream) = self.streams.get_mut(serial) else {
            return;
        };
        let waits = stream.waiting.is_for_link();
        // Who waits with a head does not wait longer for having bytes, too.
        if stream.waiting != Waiting::LinkForHead {
            stream.waiting = what;
        }
        if !waits {
            // Streams that ended meanwhile are still in it; there are never many.
            if self.blocked.len() > 2 * self.streams.len() {
                let streams = &self.streams;
                self.blocked.retain(|&other| {
                    let stream = streams.get(other);
                    stream.is_some_and(|stream| stream.waiting.is_for_link())
                });
                if self.blocked.contains(&serial) {
                    return;
                }
            }
            self.blocked.push_back(serial);
        }
    }
}

/// What header blocks of either end are held to.
fn head_limits(limits: &LinkLimits) -> HeadLimits {
    HeadLimits {
        templates: limits.max_templates,
        template_bytes: HeadLimits::DEFAULT.template_bytes,
        all_bytes: limits.template_bytes,
        max_head_bytes: limits.max_head,
    }
}
