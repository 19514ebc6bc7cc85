//! Receiving bytes of streams, more room, and the ends of streams.

use super::super::super::LinkError;
use super::super::super::frame::{FrameKind, Head, Serial};
use super::super::streams::Waiting;
use super::super::{End, Session, Streams};
use super::{MAX_CREDIT, NO_STREAM};

impl Session {
    pub(super) fn data(
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

    /// Bytes of a stream, and its end unless there are `more`.
    pub(super) fn content(
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
            // The length of a frame fits 16 bits.
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

    /// Removes a stream that has ended in both directions.
    pub(super) fn close(&mut self, serial: Serial, streams: &mut impl Streams) {
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

    pub(super) fn credit(
        &mut self,
        serial: Serial,
        payload: &[u8],
        streams: &mut impl Streams,
    ) -> Result<(), LinkError> {
        let credit: [u8; 4] = payload.try_into().map_err(|_| NO_STREAM)?;
        let credit = u32::from_be_bytes(credit);
        if credit == 0 {
            return Err(LinkError::Rule("a window grows by 0"));
        }
        // The frame may cross the end of its stream, which is then no longer known.
        let Some(stream) = self.streams.get_mut(serial) else {
            return Ok(());
        };
        let sum = stream.credit.checked_add(credit);
        stream.credit = sum
            .filter(|&sum| sum <= MAX_CREDIT)
            .ok_or(LinkError::Rule("a window is too large"))?;
        if stream.waiting == Waiting::Window {
            self.writable(serial, streams);
        }
        Ok(())
    }

    /// A stream that waited for its own window has room again.
    pub(super) fn writable(&mut self, serial: Serial, streams: &mut impl Streams) {
        if self.body_room() == 0 {
            self.wait_for_link(serial, Waiting::Link);
        } else if let Some(stream) = self.streams.get_mut(serial) {
            stream.waiting = Waiting::Nothing;
            streams.writable(serial);
        }
    }

    /// Wakes streams that waited for the link window, as far as there is room: for bytes, or only for heads. A stream
    /// that fills it again returns to the end of the queue.
    pub(super) fn wake(&mut self, streams: &mut impl Streams) {
        if self.link_room() == 0 {
            return;
        }
        let for_bytes = self.body_room() > 0;
        for _ in 0..self.blocked.len() {
            let Some(serial) = self.blocked.pop_front() else {
                return;
            };
            match self.streams.get_mut(serial) {
                Some(stream) if stream.waiting == Waiting::Link && !for_bytes => {
                    self.blocked.push_back(serial);
                }
                Some(stream) if stream.waiting.is_for_link() => {
                    stream.waiting = Waiting::Nothing;
                    streams.writable(serial);
                }
                _ => {}
            }
        }
    }

    pub(super) fn reset_came(&mut self, head: Head, serial: Serial, streams: &mut impl Streams) {
        // Like a WINDOW, a RESET may cross the end of its stream.
        let Some(stream) = self.streams.get(serial) else {
            return;
        };
        let (answers, told) = (stream.sending, !stream.dropped);
        if answers {
            let mut answer = self.frame(FrameKind::Reset, serial);
            answer.code = head.code;
            self.out.push(answer, &[]);
        }
        if told {
            streams.reset(serial, head.code);
        }
        self.close(serial, streams);
    }
}
