//! Calls of the streams' owner.

use super::super::frame::{Code, FrameKind, Serial};
use super::streams::Waiting;
use super::{End, MAX_DESTINATION_BYTES, MAX_HEADS, NoStream, Session, block};

impl Session {
    /// Whether a stream can be opened now. The answer may change after each receive.
    #[must_use]
    pub fn may_open(&self) -> bool {
        self.check_open().is_ok()
    }

    /// Whether streams can be opened only after the peer has acknowledged data.
    #[must_use]
    pub fn is_full(&self) -> bool {
        self.check_open() == Err(NoStream::Full)
    }

    fn check_open(&self) -> Result<(), NoStream> {
        if self.over || self.end == End::Server {
            Err(NoStream::Over)
        } else if self.leaving.is_some() || self.peer_leaving {
            Err(NoStream::GoingAway)
        } else if self.streams.len() >= usize::from(self.theirs.max_streams) {
            Err(NoStream::TooMany)
        } else if self.link_room() == 0 {
            Err(NoStream::Full)
        } else {
            Ok(())
        }
    }

    /// Opens an exchange with a complete HTTP/1.1 head, including its empty line, to `destination`. Templates are not
    /// shared between values of `scope`. [`send`](Self::send) sends the body.
    ///
    /// # Errors
    /// [`NoStream`]; nothing was sent.
    pub fn open(
        &mut self,
        scope: u32,
        destination: &[u8],
        head: &[u8],
        wants_answer: bool,
    ) -> Result<Serial, NoStream> {
        self.check_open()?;
        if head.len() > self.theirs.max_head as usize || !is_destination(destination) {
            return Err(NoStream::TooLong);
        }
        self.block.clear();
        let encoder = &mut self.encoder;
        encoder.encode(scope, destination, head, &mut self.block);
        let serial = self.next_serial();
        let mut stream = self.new_stream(serial);
        stream.receiving = wants_answer;
        stream.last = self.push_block(serial, wants_answer, Code::OK);
        self.streams.insert(stream);
        Ok(serial)
    }

    /// Opens an opaque flow to `destination`.
    ///
    /// # Errors
    /// [`NoStream`]; nothing was sent.
    pub fn open_flow(&mut self, destination: &[u8]) -> Result<Serial, NoStream> {
        self.check_open()?;
        if !is_destination(destination) {
            return Err(NoStream::TooLong);
        }
        let serial = self.next_serial();
        let mut head = self.frame(FrameKind::Open, serial);
        (head.wanted, head.more) = (true, true);
        let length = (destination.len() as u16).to_be_bytes();
        let mut stream = self.new_stream(serial);
        stream.is_flow = true;
        stream.last = self.out.push(head, &[&length, destination]);
        self.streams.insert(stream);
        Ok(serial)
    }

    /// Sends the head of a response: the final one, or interim ones before it, at most [`MAX_HEADS`] in all.
    /// [`send`](Self::send) sends the body.
    ///
    /// # Errors
    /// [`NoStream::Full`] when it must wait; the stream is reported writable later. Other errors are permanent.
    pub fn answer(
        &mut self,
        serial: Serial,
        scope: u32,
        code: Code,
        head: &[u8],
    ) -> Result<(), NoStream> {
        if self.over || self.end == End::Client {
            return Err(NoStream::Over);
        }
        if head.len() > self.theirs.max_head as usize {
            return Err(NoStream::TooLong);
        }
        match self.streams.get(serial) {
            Some(stream) if stream.sending && !stream.is_flow && stream.heads < MAX_HEADS => {}
            _ => return Err(NoStream::Over),
        }
        if self.link_room() == 0 {
            self.wait_for_link(serial, Waiting::LinkForHead);
            return Err(NoStream::Full);
        }
        self.block.clear();
        self.encoder.encode(scope, &[], head, &mut self.block);
        let last = self.push_block(serial, false, code);
        if let Some(stream) = self.streams.get_mut(serial) {
            stream.last = last;
            stream.heads += 1;
            stream.owes_head = false;
        }
        Ok(())
    }

    /// Sends the part of `bytes` that fits, and returns its length. If that is not all, the stream is reported writable
    /// later.
    ///
    /// At the server end of an exchange nothing is sent before the [`answer`](Self::answer).
    pub fn send(&mut self, serial: Serial, bytes: &[u8]) -> usize {
        let mut room = self.body_room();
        let longest = self.longest_payload();
        let head = self.frame(FrameKind::Data, serial);
        let Some(stream) = self.streams.get_mut(serial) else {
            return 0;
        };
        if !stream.sending || stream.owes_head {
            return 0;
        }
        let most = bytes.len().min(stream.credit as usize);
        let mut taken = 0;
        if room > 0 && most > 0 {
            taken = self
                .out
                .extend(stream.last, &bytes[..most.min(room)], longest);
            room -= taken;
        }
        while taken < most && room > 0 {
            let piece = (most - taken).min(longest).min(room);
            let more = super::Head { more: true, ..head };
            stream.last = self.out.push(more, &[&bytes[taken..taken + piece]]);
            taken += piece;
            room = room.saturating_sub(piece + super::HEAD_BYTES);
        }
        // At most the credit, which fits 32 bits.
        stream.credit -= taken as u32;
        if taken < bytes.len() {
            if taken == most {
                stream.waiting = Waiting::Window;
            } else {
                self.wait_for_link(serial, Waiting::Link);
            }
        }
        taken
    }

    /// The most bytes that [`send`](Self::send) would take now.
    #[must_use]
    pub fn room(&self, serial: Serial) -> usize {
        match self.streams.get(serial) {
            Some(stream) if stream.sending && !stream.owes_head => {
                self.body_room().min(stream.credit as usize)
            }
            _ => 0,
        }
    }

    /// Half-closes the stream: this end has sent everything. Returns whether the stream is now over, in which case no
    /// further call follows for it.
    ///
    /// A response without a head is [reset](Self::reset) instead.
    pub fn end(&mut self, serial: Serial) -> bool {
        let head = self.frame(FrameKind::Data, serial);
        let Some(stream) = self.streams.get_mut(serial) else {
            return false;
        };
        if !stream.sending {
            return false;
        }
        if stream.owes_head {
            return self.reset(serial, Code::INTERNAL);
        }
        if !self.out.finish(stream.last) {
            stream.last = self.out.push(head, &[]);
        }
        stream.sending = false;
        stream.waiting = Waiting::Nothing;
        let over = !stream.receiving;
        if over {
            self.streams.remove(serial);
        }
        over
    }

    /// Resets a stream in both directions. Returns whether the stream is now over, in which case no further call
    /// follows for it. Otherwise only its end is reported, later.
    pub fn reset(&mut self, serial: Serial, code: Code) -> bool {
        let mut head = self.frame(FrameKind::Reset, serial);
        head.code = code;
        let Some(stream) = self.streams.get_mut(serial) else {
            return false;
        };
        if stream.dropped {
            return false;
        }
        self.out.push(head, &[]);
        stream.sending = false;
        stream.waiting = Waiting::Nothing;
        stream.dropped = true;
        let over = !stream.receiving;
        if over {
            self.streams.remove(serial);
        }
        over
    }

    /// The owner has processed `bytes` of a stream, so the peer may send as many more. It is told when they reach half
    /// a window. If the reader has consumed everything, the window also grows.
    pub fn consumed(&mut self, serial: Serial, bytes: usize) {
        let most = self.ours.grown_window;
        let mut head = self.frame(FrameKind::Window, serial);
        let Some(stream) = self.streams.get_mut(serial) else {
            return;
        };
        if !stream.receiving || stream.dropped {
            return;
        }
        let bytes = (bytes as u64).min(stream.unread.into()) as u32;
        stream.unread -= bytes;
        stream.read += bytes;
        if stream.read < stream.window / 2 {
            return;
        }
        let mut credit = stream.read;
        if stream.unread == 0 {
            let more = stream.window.min(most.saturating_sub(stream.window));
            stream.window += more;
            credit += more;
        }
        stream.read = 0;
        stream.room += credit;
        head.more = true;
        self.out.push(head, &[&credit.to_be_bytes()]);
    }

    /// Announces that this end opens and accepts no more streams; open ones continue.
    pub fn go_away(&mut self, code: Code) {
        self.leaving = Some(code);
        self.pending.go_away = true;
    }

    fn next_serial(&mut self) -> Serial {
        let mut serial = self.last.map_or(Serial::FIRST, Serial::next);
        // There are far fewer open streams than serials.
        while self.streams.contains(serial) {
            serial = serial.next();
        }
        self.last = Some(serial);
        serial
    }

    /// Appends the frames of the header block in `block`. Returns the offset of the last one.
    fn push_block(&mut self, serial: Serial, wanted: bool, code: Code) -> u64 {
        let longest = self.longest_payload();
        let mut head = self.frame(FrameKind::Part, serial);
        (head.wanted, head.more) = (wanted, true);
        let mut rest = &self.block[..];
        while block::MAX_BYTES + rest.len() > longest {
            let (piece, more) = rest.split_at(longest.min(rest.len()));
            self.out.push(head, &[piece]);
            head.wanted = false;
            rest = more;
        }
        let (length, used) = block::put(rest.len() as u16);
        (head.kind, head.code) = (FrameKind::Message, code);
        self.out.push(head, &[&length[..used], rest])
    }
}

fn is_destination(destination: &[u8]) -> bool {
    (1..=MAX_DESTINATION_BYTES).contains(&destination.len())
}
