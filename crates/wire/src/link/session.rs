//! One end of a link: frames and streams in both directions, independent of connections.
//!
//! The owner passes in bytes and the time, and gets calls to [`Streams`] with their meaning. The session never waits,
//! dials or reads a clock. `now_ms` may come from any monotonic clock, the same one for all calls.
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
//! A client sends nothing but its HELLO until it has received the server's. An end that resumes waits for the peer's
//! HELLO, which says from which offset to send again. A server that no longer knows the session answers with another
//! token: the client's streams are reported [lost](Streams::lost), and a new session begins in the same `Session`.
//!
//! # A stream
//! ```text
//!   open, open_flow          answer, send            end, reset
//!   ─────────────▶ both send ─────────────▶ … ──────────────────▶ half ended ──the other end, too──▶ over
//!   ◀─── opened ──           ◀─ head, data ─        ◀ ended, reset
//! ```
//! After an end has reset a stream, its owner gets only one more call for it, [`over`](Streams::over). A reset from the
//! peer ends both directions. The end of both directions is reported once: by [`over`](Streams::over), or by a call of
//! the owner that returns `true`. After that the serial is free.
//!
//! # What the owner does
//! ```text
//!   read some bytes ──▶ receive ──▶ (told things) ──▶ answer, send, consumed, end…
//!   while wants_transmit and the socket takes bytes: transmit ──▶ write
//!   sleep until next_deadline ──▶ tick
//! ```
//! | connection | |
//! |---|---|
//! | [`connected`](Session::connected), [`disconnected`](Session::disconnected) | it is open, it is lost |
//! | [`receive`](Session::receive) | an error: close the connection, [`fail_all`](Session::fail_all), drop the session |
//! | [`transmit`](Session::transmit) | while [`wants_transmit`](Session::wants_transmit); extra calls do no harm |
//! | [`tick`](Session::tick) | at [`next_deadline`](Session::next_deadline), after `receive` of all arrived bytes |
//! | **streams** | |
//! | [`open`](Session::open), [`open_flow`](Session::open_flow) | at the client end, even before a connection is open |
//! | [`answer`](Session::answer) | at the server end, before `send`; more than once with interim responses |
//! | [`send`](Session::send) | takes the bytes that fit; if not all: [`writable`](Streams::writable) follows |
//! | [`consumed`](Session::consumed) | bytes from [`data`](Streams::data) have left the owner's buffers |
//! | [`end`](Session::end), [`reset`](Session::reset) | `true`: the stream is over, no further call follows for it |
//! | [`go_away`](Session::go_away) | at either end; when the session [is idle](Session::is_idle) the connection may be closed |
//! | [`ask_for`](Session::ask_for) | at the server end: asks for [another link](Streams::asked), still takes streams |
//!
//! A server first parses the client's [`Hello`](super::hello::Hello::parse), finds the session by its token (and its
//! identities) or makes one, and then passes it all bytes, with the HELLO. On [`Verdict::PathDead`]: close the
//! connection, call `disconnected`, dial again. On [`Verdict::SessionOver`]: drop the session.
//!
//! At the client end, a message that wants no answer is over once the client has ended it. Its arrival is not reported.
//!
//! [`send`](Session::send) frames its bytes at once and keeps them until the peer acknowledges them. Write the output
//! of [`transmit`](Session::transmit) in order, or give the connection up. After
//! [`disconnected`](Session::disconnected) pass in no more bytes of the old connection.
//!
//! Streams, frames and heads allocate nothing once the buffers have grown. The buffers are freed when the session has
//! been idle for a second.

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

/// Limit on the destination of a stream, in bytes.
pub const MAX_DESTINATION_BYTES: usize = 1024;
/// Limit on the heads of one stream: interim responses and the final one.
pub const MAX_HEADS: u8 = 128;
/// Smallest room in the link window that is used, in bytes: below it, frames would consist mostly of their heads.
const LEAST_ROOM: usize = 256;

/// The first frame of a stream.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Opened {
    /// A request, with a response if one is wanted.
    Exchange {
        /// `false`: no response can be sent, and the stream is over when the request ends.
        wants_answer: bool,
    },
    /// An opaque flow of bytes in both directions.
    Flow,
}

/// Callbacks to the owner of the streams, in the order in which the peer sent the frames.
pub trait Streams {
    /// The session resumes on another connection, with all of its open streams.
    fn resumed(&mut self) {}
    /// The peer has opened a stream. `destination_id`, if any, identifies this destination for the lifetime of the
    /// session.
    fn opened(
        &mut self,
        serial: Serial,
        what: Opened,
        destination: &[u8],
        destination_id: Option<u32>,
    );
    /// A head arrived. On a stream that the peer opened: once, before anything else. On one that was opened here: the
    /// response's head, after any interim ones.
    fn head(&mut self, serial: Serial, code: Code, head: &[u8]);
    /// Bytes arrived. They count against the stream's window until they are [consumed](Session::consumed).
    fn data(&mut self, serial: Serial, bytes: &[u8]);
    /// The peer has half-closed the stream: it sends no more.
    fn ended(&mut self, serial: Serial);
    /// The peer has reset the stream; [`over`](Self::over) follows.
    fn reset(&mut self, serial: Serial, code: Code);
    /// There may be room again, after a send that took only a part or an answer that had to wait.
    fn writable(&mut self, serial: Serial);
    /// Both directions have ended, and the serial is free.
    fn over(&mut self, serial: Serial);
    /// The peer opens no more streams, or accepts none after `last`: later ones are reset with [`Code::GOING_AWAY`].
    fn going_away(&mut self, code: Code, last: Option<Serial>);
    /// The server asks for another link. It still accepts streams on this one.
    fn asked(&mut self, _for: Another) {}
    /// The session is lost, and this stream with it. If `was_sent` is false, the peer has certainly seen nothing of it.
    fn lost(&mut self, serial: Serial, was_sent: bool);
}

/// Why a stream cannot be opened, or a head cannot be sent.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum NoStream {
    /// The peer's limit on open streams is reached.
    TooMany,
    /// The link window is full: the peer must acknowledge data first.
    Full,
    /// One of the ends is going away.
    GoingAway,
    /// The head or the destination is longer than the peer accepts.
    TooLong,
    /// The session is over; for an answer: the stream takes none.
    Over,
}

/// Result of [`Session::tick`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Verdict {
    /// Nothing to do.
    GoOn,
    /// The peer is silent: close the connection and try another one.
    PathDead,
    /// The session is over, and all streams were reported lost.
    SessionOver,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum End {
    Client,
    Server,
}

/// State of the connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Path {
    /// There was never a connection.
    New,
    /// The last connection was lost.
    Away { since_ms: u64 },
    /// Connected, but the peer's HELLO has not arrived.
    Greeting { since_ms: u64 },
    /// Both HELLOs were exchanged.
    Up,
}

/// Events to send with the next transmit.
#[derive(Debug, Default, Clone, Copy)]
struct Pending {
    hello: bool,
    ack: bool,
    go_away: bool,
    heartbeat: bool,
    /// The number of the heartbeat to answer.
    heartbeat_answer: Option<u32>,
}

/// One end of a link.
#[derive(Debug)]
pub struct Session {
    end: End,
    ours: LinkLimits,
    theirs: LinkLimits,
    /// A server's own token; at a client, the token once the server has sent it.
    token: Token,
    /// Both ends know the session, so it can be resumed.
    begun: bool,
    /// The session has ended; nothing more happens.
    over: bool,
    path: Path,
    /// The end of the last connection on which the peer was heard; `None` while it is heard.
    away_since_ms: Option<u64>,
    pending: Pending,
    clock: Clock,
    /// `Some` once this end has announced that it is going away: the reason.
    leaving: Option<Code>,
    peer_leaving: bool,
    /// At a server: the link that it has asked the client for.
    asks_for: Option<Another>,
    /// The client can keep a second link beside this one.
    beside: bool,
    /// All streams of the client are for offline callers.
    offline: bool,

    out: Replay,
    /// Bytes of sequenced frames received.
    received: u64,
    /// How many of these bytes were acknowledged to the peer.
    acknowledged: u64,

    streams: StreamTable,
    /// Refused streams that are still in the table; the owner never saw them.
    refused: usize,
    /// The last stream that was opened.
    last: Option<Serial>,
    /// Streams that wait for room in the link window, first in first out.
    blocked: VecDeque<Serial>,

    encoder: Encoder,
    decoder: Decoder,
    /// Buffer for a received head.
    head: Vec<u8>,
    /// Buffer for a header block to send.
    block: Vec<u8>,
    /// An incomplete frame.
    partial: Vec<u8>,
    /// An incomplete header block, and the stream it belongs to.
    parts: Vec<u8>,
    parts_of: Option<(Serial, bool)>,
}

impl Session {
    /// The client end. It accepts what `ours` allows; values out of range are clamped.
    #[must_use]
    pub fn client(ours: LinkLimits) -> Self {
        Self::new(End::Client, Token::NONE, ours.for_client())
    }

    /// The server end of a session with this `token`, which must not be guessable. It accepts what `ours` allows.
    /// Limits below [`LinkLimits::INITIAL`] are raised to it, except for the number of streams and the retention.
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
            offline: false,
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

    /// A connection is open: both ends send a HELLO.
    pub fn connected(&mut self, now_ms: u64) {
        self.forget_connection();
        self.clock.connected(now_ms);
        // The server waits for the client's HELLO, which says from which offset to resume.
        self.pending.hello = self.end == End::Client;
        self.path = Path::Greeting { since_ms: now_ms };
    }

    /// The connection is lost; the session waits for another one. If it cannot be resumed, [`tick`](Self::tick) is due
    /// at once and says so.
    ///
    /// A connection on which the peer was not heard does not restart the retention time.
    pub fn disconnected(&mut self, now_ms: u64) {
        self.forget_connection();
        let since_ms = *self.away_since_ms.get_or_insert(now_ms);
        self.path = Path::Away { since_ms };
    }

    /// Whether the peer's HELLO has arrived on the current connection.
    #[must_use]
    pub fn is_up(&self) -> bool {
        self.path == Path::Up
    }

    /// Since when the peer is away, on the owner's clock: the end of the last connection on which it was heard, or of
    /// the first connection if it was never heard. `None` while it is heard.
    #[must_use]
    pub fn away_since_ms(&self) -> Option<u64> {
        self.away_since_ms
    }

    fn forget_connection(&mut self) {
        self.partial.clear();
        self.pending = Pending {
            // A GOAWAY may have been lost with the connection: send it again.
            go_away: self.leaving.is_some() || self.asks_for.is_some(),
            ..Pending::default()
        };
        self.clock.disconnected();
    }

    /// The token that identifies the session; a client has it once the server's HELLO arrived.
    #[must_use]
    pub fn token(&self) -> Option<Token> {
        (self.token != Token::NONE).then_some(self.token)
    }

    /// Whether another connection could resume the session.
    #[must_use]
    pub fn is_resumable(&self) -> bool {
        !self.over && (self.begun || !self.out.was_handed(0))
    }

    /// Whether no stream is open and the peer has acknowledged everything.
    #[must_use]
    pub fn is_idle(&self) -> bool {
        self.streams.is_empty() && self.out.is_empty()
    }

    /// Streams that are open at this end, without refused ones.
    #[must_use]
    pub fn open_streams(&self) -> usize {
        self.streams.len() - self.refused
    }

    /// Open streams that are opaque flows.
    #[must_use]
    pub fn open_flows(&self) -> usize {
        self.streams.flows()
    }

    /// Heap memory of the session in bytes, without that of header templates.
    #[must_use]
    pub fn heap_bytes(&self) -> usize {
        let buffers = [&self.head, &self.block, &self.partial, &self.parts];
        self.out.heap_bytes()
            + self.streams.heap_bytes()
            + self.blocked.capacity() * size_of::<Serial>()
            + buffers.map(Vec::capacity).iter().sum::<usize>()
    }

    /// Gives the session up: all streams are reported lost.
    pub fn fail_all(&mut self, streams: &mut impl Streams) {
        self.lose(streams);
        self.over = true;
    }

    /// Reports all streams as lost, and resets the state of the session.
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

    /// Frees the buffers of an idle session.
    fn tidy(&mut self) {
        self.streams.clear();
        self.out.tidy();
        self.blocked = VecDeque::new();
        for buffer in [&mut self.head, &mut self.block] {
            *buffer = Vec::new();
        }
        // These may hold a part of the peer's next frame.
        for buffer in [&mut self.parts, &mut self.partial] {
            if buffer.is_empty() {
                *buffer = Vec::new();
            }
        }
    }

    /// Whether [`Self::tidy`] would free anything.
    fn is_untidy(&self) -> bool {
        let kept = [&self.parts, &self.partial];
        let kept = kept.iter().filter(|buffer| !buffer.is_empty());
        self.heap_bytes() > kept.map(|buffer| buffer.capacity()).sum()
    }

    /// Whether sequenced frames may be sent. Not before the peer was heard: if it turns out to be unreachable, it has
    /// certainly processed nothing.
    fn may_send(&self) -> bool {
        self.path == Path::Up
    }

    /// The link window, in bytes.
    fn window(&self) -> usize {
        self.ours.link_window.min(self.theirs.link_window) as usize
    }

    /// Payload bytes that fit the link window.
    fn link_room(&self) -> usize {
        self.room_within(self.window())
    }

    /// Room for bytes of bodies and flows. The last eighth of the window is reserved for heads, so that exchanges can
    /// begin and be answered however much is sent.
    fn body_room(&self) -> usize {
        self.room_within(self.window() - self.window() / 8)
    }

    fn room_within(&self, window: usize) -> usize {
        match window.saturating_sub(self.out.unacknowledged()) {
            room if room < LEAST_ROOM => 0,
            room => room - HEAD_BYTES,
        }
    }

    /// Longest payload of a frame to send. A whole frame has at most 16 KiB and fills a TLS record.
    fn longest_payload(&self) -> usize {
        self.theirs.max_frame.min(LinkLimits::INITIAL.max_frame) as usize - HEAD_BYTES
    }

    /// The head of a frame to send on a stream.
    fn frame(&self, kind: FrameKind, serial: Serial) -> Head {
        Head {
            response: self.end == End::Server,
            ..Head::new(kind, serial.number())
        }
    }

    /// The state of a new stream.
    fn new_stream(&self, serial: Serial) -> Stream {
        Stream {
            credit: self.theirs.stream_window,
            window: self.ours.stream_window,
            room: self.ours.stream_window,
            first: self.out.end(),
            ..Stream::new(serial)
        }
    }

    /// Queues a stream until the link window has room for its head or bytes.
    fn wait_for_link(&mut self, serial: Serial, what: Waiting) {
        let Some(stream) = self.streams.get_mut(serial) else {
            return;
        };
        let waits = stream.waiting.is_for_link();
        // A stream that waits with a head must not be demoted to a wait for bytes, which is longer.
        if stream.waiting != Waiting::LinkForHead {
            stream.waiting = what;
        }
        if !waits {
            // The queue may still contain streams that have ended since. Remove them when there are too many.
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

/// The limits for header blocks of an end with these link limits.
fn head_limits(limits: &LinkLimits) -> HeadLimits {
    HeadLimits {
        templates: limits.max_templates,
        template_bytes: HeadLimits::DEFAULT.template_bytes,
        all_bytes: limits.template_bytes,
        max_head_bytes: limits.max_head,
    }
}
