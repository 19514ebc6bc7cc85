//! Receiving new streams and heads.

use super::super::super::LinkError;
use super::super::super::frame::{Code, FrameKind, Head, Serial};
use super::super::super::hello::LinkLimits;
use super::super::streams::Stream;
use super::super::{End, MAX_DESTINATION_BYTES, MAX_HEADS, Opened, Session, Streams, block};
use super::NO_STREAM;

/// A header block may exceed the limit on its head by this many bytes.
const BLOCK_EXTRA_BYTES: usize = 8 * 1024;

impl Session {
    pub(super) fn add_part(&mut self, piece: &[u8]) -> Result<(), LinkError> {
        if self.parts.len() + piece.len() > self.ours.max_head as usize + BLOCK_EXTRA_BYTES {
            return Err(LinkError::Rule("a header block is longer than agreed"));
        }
        self.parts.extend_from_slice(piece);
        Ok(())
    }

    pub(super) fn message(
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
        // Decode it even for a refused stream: the block may define templates.
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

    pub(super) fn flow(
        &mut self,
        head: Head,
        serial: Serial,
        payload: &[u8],
        streams: &mut impl Streams,
    ) -> Result<(), LinkError> {
        let cut = LinkError::Rule("a destination exceeds its frame");
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

    /// Checks whether the peer may open this stream. Returns the code if it is refused.
    pub(super) fn check_opened(&self, serial: Serial) -> Result<Option<Code>, LinkError> {
        if self.streams.contains(serial) {
            return Err(LinkError::Rule("an open stream is opened again"));
        }
        if self.leaving.is_some() {
            return self.check_refused(Code::GOING_AWAY);
        }
        if self.open_streams() >= usize::from(self.ours.max_streams) {
            return self.check_refused(Code::REFUSED);
        }
        Ok(None)
    }

    /// A refused stream stays in the table until the peer has ended it. Only streams opened before the peer learned of
    /// the limit can be refused, so there is a maximum.
    pub(super) fn check_refused(&self, code: Code) -> Result<Option<Code>, LinkError> {
        if self.refused >= usize::from(LinkLimits::INITIAL.max_streams.max(self.ours.max_streams)) {
            return Err(LinkError::Rule("too many streams are open"));
        }
        Ok(Some(code))
    }

    /// Adds a stream that the peer has opened.
    pub(super) fn begin(&mut self, serial: Serial, what: Opened, refusal: Option<Code>) {
        if let Some(code) = refusal {
            let mut head = self.frame(FrameKind::Reset, serial);
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
}

fn check_destination(destination: &[u8]) -> Result<(), LinkError> {
    if (1..=MAX_DESTINATION_BYTES).contains(&destination.len()) {
        Ok(())
    } else {
        Err(LinkError::Rule("a destination's length is out of bounds"))
    }
}
