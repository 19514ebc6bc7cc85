//! Bytes that came.
//!
//! ```text
//!   bytes ──▶ whole frames ──▶ events ─────────────▶ HELLO, heartbeat, ACK, GOAWAY
//!               │    ▲            sequenced ──▶ counted, ACK due
//!               ▼    │                │
//!              partial                ├─ PART ──▶ parts ──┐
//!                                     ├─ MESSAGE ─────────┴▶ decoder ──▶ opened, head, data, ended
//!                                     ├─ OPEN, DATA ───────────────────▶ opened, data, ended
//!                                     └─ WINDOW, RESET ────────────────▶ writable; reset, over
//! ```

use super::super::LinkError;
use super::super::frame::{Code, HEAD_BYTES, Head, Kind, Serial};
use super::super::heads::Encoder;
use super::super::hello::{Hello, Limits, MAX_HELLO_BYTES};
use super::streams::{Stream, Waiting};
use super::{End, MAX_DESTINATION_BYTES, Opened, Path, Session, Streams, block, head_limits};

/// A block may be this much longer than the head that it stands for, in bytes.
const BLOCK_EXTRA_BYTES: usize = 8 * 1024;
/// Heads on one stream: interim responses, and the one after them.
const MAX_HEADS: u8 = 32;
/// Most that a window may grow to, in bytes.
const MAX_CREDIT: u32 = i32::MAX as u32;

impl Session {
    /// Takes bytes of the connection, cut anywhere, and tells `streams` what they mean.
    ///
    /// # Errors
    /// [`LinkError`] when the other end breaks the protocol. The connection is to be closed and the session to
    /// be [given up](Self::fail_all).
    pub fn receive(
        &mut self,
        bytes: &[u8],
        now_ms: u64,
        streams: &mut impl Streams,
    ) -> Result<(), LinkError> {
        if self.over || matches!(self.path, Path::New | Path::Away { .. }) {
            return Err(LinkError::Rule("nothing goes on here"));
        }
        if bytes.is_empty() {
            return Ok(());
        }
        self.clock.heard(now_ms);
        let taken = self.take(bytes, now_ms, streams);
        self.clock.waits(!self.is_idle(), now_ms);
        if taken.is_err() {
            self.over = true;
        }
        taken
    }

    fn take(
        &mut self,
        mut bytes: &[u8],
        now_ms: u64,
        streams: &mut impl Streams,
    ) -> Result<(), LinkError> {
        if !self.partial.is_empty() {
            let mut frame = std::mem::take(&mut self.partial);
            let head = self.complete(&mut frame, &mut bytes)?;
            if let Some(head) = head {
                self.frame_came(head, &frame[HEAD_BYTES..], now_ms, streams)?;
                frame.clear();
            }
            self.partial = frame;
            if head.is_none() {
                return Ok(());
            }
        }
        while let Some((head, rest)) = bytes.split_first_chunk() {
            let head = self.expected(head)?;
            let Some((payload, rest)) = rest.split_at_checked(head.length.into()) else {
                self.partial.reserve(HEAD_BYTES + usize::from(head.length));
                break;
            };
            self.frame_came(head, payload, now_ms, streams)?;
            bytes = rest;
        }
        self.partial.extend_from_slice(bytes);
        Ok(())
    }

    /// Adds bytes to the beginning of a frame until it is whole. Returns its head then.
    fn complete(&self, frame: &mut Vec<u8>, bytes: &mut &[u8]) -> Result<Option<Head>, LinkError> {
        let mut add = |frame: &mut Vec<u8>, until: usize| {
            let (now, later) = bytes.split_at(bytes.len().min(until - frame.len()));
            frame.extend_from_slice(now);
            *bytes = later;
        };
        if frame.len() < HEAD_BYTES {
            add(frame, HEAD_BYTES);
        }
        let Some((head, _)) = frame.split_first_chunk() else {
            return Ok(None);
        };
        let head = self.expected(head)?;
        let whole = HEAD_BYTES + usize::from(head.length);
        frame.reserve(whole - frame.len());
        add(frame, whole);
        Ok((frame.len() == whole).then_some(head))
    }

    /// What is to be said of a frame as soon as its head is there.
    fn expected(&self, head: &[u8; HEAD_BYTES]) -> Result<Head, LinkError> {
        let head = Head::parse(head)?;
        let most = match head.kind {
            Kind::Hello => MAX_HELLO_BYTES,
            _ => self.ours.max_frame as usize,
        };
        if usize::from(head.length) > most {
            return Err(LinkError::Rule("a frame is longer than agreed"));
        }
        if (head.kind == Kind::Hello) != (self.path != Path::Up) {
            return Err(LinkError::Rule(
                "a connection begins with one HELLO, and has no other",
            ));
        }
        let from_server = self.end == End::Client;
        let says_its_end = !head.kind.is_event() || head.kind == Kind::Hello;
        if says_its_end && head.response != from_server {
            return Err(LinkError::Rule("a frame is of the wrong direction"));
        }
        Ok(head)
    }

    fn frame_came(
        &mut self,
        head: Head,
        payload: &[u8],
        now_ms: u64,
        streams: &mut impl Streams,
    ) -> Result<(), LinkError> {
        match (head.kind, Serial::new(head.number)) {
            (Kind::Hello, _) => return self.hello(head, payload, now_ms, streams),
            (Kind::Heartbeat, _) => return self.heartbeat(head, now_ms),
            (Kind::Ack, _) => {
                if self.out.acknowledge_low(head.number)? {
                    self.wake(streams);
                } else {
                    self.clock.stray(now_ms)?;
                }
                return Ok(());
            }
            (Kind::GoAway, last) => {
                self.peer_leaving = true;
                self.clock.stray(now_ms)?;
                streams.going_away(head.code, last);
                return Ok(());
            }
            (_, None) => return Err(NO_STREAM),
            (_, Some(serial)) => self.sequenced(head, serial, payload, streams)?,
        }
        self.received += (HEAD_BYTES + payload.len()) as u64;
        self.clock.acknowledge_later(now_ms);
        if self.received - self.acknowledged >= self.window() as u64 / 8 {
            self.pending.ack = true;
        }
        // Nothing but what the other end asked for goes without room. If it acknowledges nothing of that it
        // could ask for ever.
        if self.out.unacknowledged() > 2 * self.window() + 2 * self.theirs.max_head as usize {
            return Err(LinkError::Rule("nothing is acknowledged"));
        }
        Ok(())
    }

    fn sequenced(
        &mut self,
        head: Head,
        serial: Serial,
        payload: &[u8],
        streams: &mut impl Streams,
    ) -> Result<(), LinkError> {
        if let Some((whose, _)) = self.parts_of {
            let goes_on = matches!(head.kind, Kind::Part | Kind::Message);
            if !goes_on || serial != whose || head.wanted {
                return Err(LinkError::Rule("a header block does not go on"));
            }
        } else if self.end == End::Client && head.wanted {
            return Err(LinkError::Rule("a response wants one"));
        }
        match head.kind {
            Kind::Part => {
                let wanted = head.wanted;
                self.parts_of.get_or_insert((serial, wanted));
                self.add_part(payload)
            }
            Kind::Message => self.message(head, serial, payload, streams),
            Kind::Open => self.flow(head, serial, payload, streams),
            Kind::Data => self.data(head, serial, payload, streams),
            Kind::Window => self.credit(serial, payload, streams),
            Kind::Reset => {
                self.reset_came(head, serial, streams);
                Ok(())
            }
            Kind::Hello | Kind::Heartbeat | Kind::Ack | Kind::GoAway => Ok(()),
        }
    }

    fn add_part(&mut self, piece: &[u8]) -> Result<(), LinkError> {
        if self.parts.len() + piece.len() > self.ours.max_head as usize + BLOCK_EXTRA_BYTES {
            return Err(LinkError::Rule("a header block is longer than agreed"));
        }
        self.parts.extend_from_slice(piece);
        Ok(())
    }

    fn message(
        &mut self,
        head: Head,
        serial: Serial,
        payload: &[u8],
        streams: &mut impl Streams,
    ) -> Result<(), LinkError> {
        let (piece, body) = block::split(payload)?;
        let mut wanted = head.wanted;
        let mut parts = Vec::new();
        let block = match self.parts_of.take() {
            None => piece,
            Some((_, first_wanted)) => {
                wanted = first_wanted;
                self.add_part(piece)?;
                parts = std::mem::take(&mut self.parts);
                &parts
            }
        };
        let what = Opened::Exchange {
            wants_answer: wanted,
        };
        let refusal = match self.end {
            End::Server => self.check_opened(serial)?,
            End::Client => None,
        };
        let mut text = std::mem::take(&mut self.head);
        text.clear();
        // What is refused may define templates nevertheless.
        let decoded = self.decoder.decode(block, &mut text)?;
        match self.end {
            End::Server => {
                let (destination, id) = (decoded.destination, decoded.destination_id);
                check_destination(destination)?;
                if refusal.is_none() {
                    streams.opened(serial, what, destination, id);
                    streams.head(serial, head.code, &text);
                }
                self.begin(serial, what, refusal);
            }
            End::Client => {
                if !decoded.destination.is_empty() {
                    return Err(LinkError::Rule("a response has a destination"));
                }
                let stream = self.streams.get_mut(serial);
                let stream = stream.filter(|stream| stream.receiving).ok_or(NO_STREAM)?;
                if stream.is_flow || stream.in_body || stream.heads == MAX_HEADS {
                    return Err(LinkError::Rule("a head is out of place"));
                }
                stream.heads += 1;
                if !stream.dropped {
                    streams.head(serial, head.code, &text);
                }
            }
        }
        self.head = text;
        if parts.capacity() > 0 {
            parts.clear();
            self.parts = parts;
        }
        self.content(serial, body, head.more, streams)
    }

    fn flow(
        &mut self,
        head: Head,
        serial: Serial,
        payload: &[u8],
        streams: &mut impl Streams,
    ) -> Result<(), LinkError> {
        let cut = LinkError::Rule("a destination is beyond its frame");
        let (length, rest) = payload.split_first_chunk().ok_or(cut)?;
        let length = usize::from(u16::from_be_bytes(*length));
        let (destination, bytes) = rest.split_at_checked(length).ok_or(cut)?;
        check_destination(destination)?;
        let refusal = self.check_opened(serial)?;
        if refusal.is_none() {
            streams.opened(serial, Opened::Flow, destination, None);
        }
        self.begin(serial, Opened::Flow, refusal);
        self.content(serial, bytes, head.more, streams)
    }

    /// Whether the other end may open this stream, and why it is not taken if so.
    fn check_opened(&self, serial: Serial) -> Result<Option<Code>, LinkError> {
        if self.streams.contains(serial) {
            return Err(LinkError::Rule("a stream is opened that is open"));
        }
        if self.leaving.is_some() {
            return self.check_refused(Code::GOING_AWAY);
        }
        if self.open_streams() >= usize::from(self.ours.max_streams) {
            return self.check_refused(Code::REFUSED);
        }
        Ok(None)
    }

    /// What is refused stays in the table until the other end has ended it. No more can come than before it has
    /// heard of the limit.
    fn check_refused(&self, code: Code) -> Result<Option<Code>, LinkError> {
        if self.refused >= usize::from(Limits::INITIAL.max_streams.max(self.ours.max_streams)) {
            return Err(LinkError::Rule("too many streams are open"));
        }
        Ok(Some(code))
    }

    /// A stream is there that the other end has opened.
    fn begin(&mut self, serial: Serial, what: Opened, refusal: Option<Code>) {
        if let Some(code) = refusal {
            let mut head = self.frame(Kind::Reset, serial);
            head.code = code;
            self.out.push(head, &[]);
            self.refused += 1;
        }
        let may_answer = what
            != Opened::Exchange {
                wants_answer: false,
            };
        self.last = Some(serial);
        self.streams.insert(Stream {
            sending: refusal.is_none() && may_answer,
            owes_head: what != Opened::Flow,
            is_flow: what == Opened::Flow,
            dropped: refusal.is_some(),
            refused: refusal.is_some(),
            ..self.new_stream(serial)
        });
    }

    fn data(
        &mut self,
        head: Head,
        serial: Serial,
        payload: &[u8],
        streams: &mut impl Streams,
    ) -> Result<(), LinkError> {
        if self.end == End::Client {
            let stream = self.streams.get(serial).ok_or(NO_STREAM)?;
            if !stream.is_flow && stream.heads == 0 {
                return Err(LinkError::Rule("a body comes before its head"));
            }
        }
        self.content(serial, payload, head.more, streams)
    }

    /// Bytes of a stream, and its end unless there are more.
    fn content(
        &mut self,
        serial: Serial,
        bytes: &[u8],
        more: bool,
        streams: &mut impl Streams,
    ) -> Result<(), LinkError> {
        let stream = self.streams.get_mut(serial);
        let stream = stream.filter(|stream| stream.receiving).ok_or(NO_STREAM)?;
        let told = !stream.dropped;
        if !bytes.is_empty() {
            // A frame's length is a number of 16 bits.
            let length = bytes.len() as u32;
            if length > stream.room {
                return Err(LinkError::Rule("a stream's window is overrun"));
            }
            stream.room -= length;
            stream.in_body = true;
            if told {
                stream.unread += length;
                streams.data(serial, bytes);
            }
        }
        if !more {
            stream.receiving = false;
            let over = !stream.sending;
            if told {
                streams.ended(serial);
            }
            if over {
                self.close(serial, streams);
            }
        }
        Ok(())
    }

    /// Both directions of a stream have ended.
    fn close(&mut self, serial: Serial, streams: &mut impl Streams) {
        let refused = self
            .streams
            .get(serial)
            .is_some_and(|stream| stream.refused);
        self.streams.remove(serial);
        if refused {
            self.refused -= 1;
        } else {
            streams.over(serial);
        }
    }

    fn credit(
        &mut self,
        serial: Serial,
        payload: &[u8],
        streams: &mut impl Streams,
    ) -> Result<(), LinkError> {
        let credit: [u8; 4] = payload.try_into().map_err(|_| NO_STREAM)?;
        let credit = u32::from_be_bytes(credit);
        if credit == 0 {
            return Err(LinkError::Rule("a window grows by nothing"));
        }
        // It may cross the end of its stream, which nobody remembers then.
        let Some(stream) = self.streams.get_mut(serial) else {
            return Ok(());
        };
        let sum = stream.credit.checked_add(credit);
        stream.credit = sum
            .filter(|&sum| sum <= MAX_CREDIT)
            .ok_or(LinkError::Rule("a window is too wide"))?;
        if stream.waiting == Waiting::Window {
            self.writable(serial, streams);
        }
        Ok(())
    }

    /// A stream that waited for its window has some.
    fn writable(&mut self, serial: Serial, streams: &mut impl Streams) {
        if self.link_room() == 0 {
            self.wait_for_link(serial);
        } else if let Some(stream) = self.streams.get_mut(serial) {
            stream.waiting = Waiting::Nothing;
            streams.writable(serial);
        }
    }

    /// Tells streams that waited for the link's window that there is some. Those that still want
    /// some when it is used up line up again.
    fn wake(&mut self, streams: &mut impl Streams) {
        if self.link_room() == 0 {
            return;
        }
        while let Some(serial) = self.blocked.pop_front() {
            let stream = self.streams.get_mut(serial);
            if let Some(stream) = stream.filter(|stream| stream.waiting == Waiting::Link) {
                stream.waiting = Waiting::Nothing;
                streams.writable(serial);
            }
        }
    }

    fn reset_came(&mut self, head: Head, serial: Serial, streams: &mut impl Streams) {
        // As a window, it may cross the end of its stream.
        let Some(stream) = self.streams.get(serial) else {
            return;
        };
        let (answers, told) = (stream.sending, !stream.dropped);
        if answers {
            let mut answer = self.frame(Kind::Reset, serial);
            answer.code = head.code;
            self.out.push(answer, &[]);
        }
        if told {
            streams.reset(serial, head.code);
        }
        self.close(serial, streams);
    }

    fn heartbeat(&mut self, head: Head, now_ms: u64) -> Result<(), LinkError> {
        if head.wanted {
            self.pending.heartbeat_answer = Some(head.number);
            return self.clock.stray(now_ms);
        }
        if self.clock.heartbeat_answered(head.number) {
            Ok(())
        } else {
            Err(LinkError::Rule("a heartbeat is answered that was not sent"))
        }
    }

    fn hello(
        &mut self,
        head: Head,
        payload: &[u8],
        now_ms: u64,
        streams: &mut impl Streams,
    ) -> Result<(), LinkError> {
        let hello = Hello::parse_payload(payload, head.response)?;
        let same = self.begun && hello.token == self.token;
        if same {
            if hello.limits != self.theirs {
                return Err(LinkError::Rule("limits change within a session"));
            }
            self.out.resume(hello.received)?;
        } else {
            match self.end {
                End::Server if self.begun => {
                    return Err(LinkError::Rule("another session is meant"));
                }
                End::Server => {
                    // Whatever session the client had in mind, this is a new one.
                    self.encoder = Encoder::new(&head_limits(&hello.limits));
                    self.theirs = hello.limits;
                }
                End::Client => self.told_token(&hello, streams)?,
            }
            self.token = match self.end {
                End::Server => self.token,
                End::Client => hello.token,
            };
            self.begun = true;
        }
        self.path = Path::Up;
        if self.end == End::Server {
            self.pending.hello = true;
        }
        self.clock.heard(now_ms);
        self.wake(streams);
        Ok(())
    }

    /// A client learns of a new session: of the one that it has begun, or that the one it had is lost.
    fn told_token(&mut self, hello: &Hello, streams: &mut impl Streams) -> Result<(), LinkError> {
        if self.begun {
            self.lose(streams);
            self.peer_leaving = false;
        }
        self.out.acknowledge(hello.received)?;
        // What was opened on trust has a wider window, too.
        let wider = hello.limits.stream_window - Limits::INITIAL.stream_window;
        self.theirs = hello.limits;
        if wider == 0 {
            return Ok(());
        }
        let mut waiting = Vec::new();
        for stream in self.streams.iter_mut() {
            stream.credit = stream.credit.saturating_add(wider).min(MAX_CREDIT);
            if stream.waiting == Waiting::Window {
                waiting.extend(stream.serial());
            }
        }
        for serial in waiting {
            self.writable(serial, streams);
        }
        Ok(())
    }
}

/// What is said of a stream that does not exist, or whose sender has ended it.
const NO_STREAM: LinkError = LinkError::Rule("a frame is of no stream");

fn check_destination(destination: &[u8]) -> Result<(), LinkError> {
    if (1..=MAX_DESTINATION_BYTES).contains(&destination.len()) {
        Ok(())
    } else {
        Err(LinkError::Rule("a destination's length is out of bounds"))
    }
}
