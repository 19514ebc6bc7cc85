//! Receiving bytes.
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

mod bodies;
mod greeting;
mod messages;

use super::super::LinkError;
use super::super::frame::{FrameKind, HEAD_BYTES, Head, Serial};
use super::super::hello::MAX_HELLO_BYTES;
use super::{End, Path, Session, Streams};

/// Limit on a stream's send window, in bytes.
const MAX_CREDIT: u32 = i32::MAX as u32;
/// A frame for a stream that does not exist, or that its sender has ended.
const NO_STREAM: LinkError = LinkError::Rule("a frame is for an unknown or ended stream");

impl Session {
    /// Processes bytes of the connection, split anywhere, and reports their meaning to `streams`.
    ///
    /// # Errors
    /// [`LinkError`] when the peer breaks the protocol: close the connection and [give up](Self::fail_all) the session.
    pub fn receive(
        &mut self,
        bytes: &[u8],
        now_ms: u64,
        streams: &mut impl Streams,
    ) -> Result<(), LinkError> {
        if self.over || matches!(self.path, Path::New | Path::Away { .. }) {
            return Err(LinkError::Rule("the session has no connection, or is over"));
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

    /// Appends bytes to an incomplete frame. Returns its head once the frame is complete.
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

    /// Decodes a frame head, and makes the checks that need no payload.
    fn expected(&self, head: &[u8; HEAD_BYTES]) -> Result<Head, LinkError> {
        let head = Head::parse(head)?;
        let most = match head.kind {
            FrameKind::Hello => MAX_HELLO_BYTES,
            _ => self.ours.max_frame as usize,
        };
        if usize::from(head.length) > most {
            return Err(LinkError::Rule("a frame is longer than agreed"));
        }
        if (head.kind == FrameKind::Hello) != (self.path != Path::Up) {
            return Err(LinkError::Rule(
                "a connection begins with one HELLO, and has no other",
            ));
        }
        let from_server = self.end == End::Client;
        let says_its_end = !head.kind.is_event() || head.kind == FrameKind::Hello;
        if says_its_end && head.response != from_server {
            return Err(LinkError::Rule("a frame has the wrong direction"));
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
            (FrameKind::Hello, _) => return self.hello(head, payload, now_ms, streams),
            (FrameKind::Heartbeat, _) => return self.heartbeat(head, now_ms),
            (FrameKind::Ack, _) => {
                if self.out.acknowledge_low(head.number)? {
                    self.wake(streams);
                } else {
                    self.clock.stray(now_ms)?;
                }
                return Ok(());
            }
            (FrameKind::GoAway, last) => {
                self.clock.stray(now_ms)?;
                match self.asked_by(&head) {
                    Some(what) => streams.asked(what),
                    None => {
                        self.peer_leaving = true;
                        streams.going_away(head.code, last);
                    }
                }
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
        // Only answers to the peer's own requests may exceed the window. A peer that never acknowledges them could
        // otherwise make this buffer grow forever.
        if self.out.unacknowledged() > 2 * self.window() + 2 * self.theirs.max_head as usize {
            return Err(LinkError::Rule("too many bytes are not acknowledged"));
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
            let goes_on = matches!(head.kind, FrameKind::Part | FrameKind::Message);
            if !goes_on || serial != whose || head.wanted {
                return Err(LinkError::Rule("a header block is interrupted"));
            }
        } else if self.end == End::Client && head.wanted {
            return Err(LinkError::Rule("a response asks for an answer"));
        }
        match head.kind {
            FrameKind::Part => {
                let wanted = head.wanted;
                self.parts_of.get_or_insert((serial, wanted));
                self.add_part(payload)
            }
            FrameKind::Message => self.message(head, serial, payload, streams),
            FrameKind::Open => self.flow(head, serial, payload, streams),
            FrameKind::Data => self.data(head, serial, payload, streams),
            FrameKind::Window => self.credit(serial, payload, streams),
            FrameKind::Reset => {
                self.reset_came(head, serial, streams);
                Ok(())
            }
            FrameKind::Hello | FrameKind::Heartbeat | FrameKind::Ack | FrameKind::GoAway => Ok(()),
        }
    }
}
