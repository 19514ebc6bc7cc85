//! What the owner of the streams does with them.

use super::super::frame::{Code, FrameKind, Serial};
use super::streams::Waiting;
use super::{End, MAX_DESTINATION_BYTES, MAX_HEADS, NoStream, Session, block};

impl Session {
    /// Whether a stream could be opened right now. It may become so whenever something was
    /// received.
    #[must_use]
    pub fn may_open(&self) -> bool {
        self.check_open().is_ok()
    }

    /// Whether no stream can be opened now, but once the other end has acknowledged something.
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

    /// Opens an exchange: a whole HTTP/1.1 head, its empty line included, to be called at `destination` in
    /// the name of `scope` (which templates are not shared between). Its body is [sent](Self::send).
    ///
    /// # Errors
    /// [`NoStream`]; then nothing was sent.
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
    /// [`NoStream`]; then nothing was sent.
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

    /// Sends the head of a response: one, or interim ones before it, [`MAX_HEADS`] in all. Its body is
    /// [sent](Self::send).
    ///
    /// # Errors
    /// [`NoStream::Full`] when it has to wait; the stream is told to be writable then. Others are for ever.
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

    /// Sends as many of `bytes` as there is room for, and says how many that are. If it is less than all, the
    /// stream is told to be writable later.
    ///
    /// On the called end of an exchange none, before it was [answered](Self::answer).
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
        // No more than the credit, which is a number of 32 bits.
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

    /// How many bytes [`send`](Self::send) would take, at most.
    #[must_use]
    pub fn room(&self, serial: Serial) -> usize {
        match self.streams.get(serial) {
            Some(stream) if stream.sending && !stream.owes_head => {
                self.body_room().min(stream.credit as usize)
            }
            _ => 0,
        }
    }

    /// Says that this end has sent everything. Returns whether the stream is over with that: then nothing more
    /// is told of it.
    ///
    /// A response that has no head is [reset](Self::reset) instead.
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

    /// Gives a stream up, in both directions. Returns whether the stream is over with that: then nothing more is
    /// told of it. Otherwise only that it is over, later.
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

    /// The owner has passed `bytes` of a stream on: as many more may come. They are told to the
    /// other end when they are half a window. Whose reader leaves nothing behind is trusted with more.
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

    /// Says that this end opens nothing more, or takes nothing more: what is open goes on.
    pub fn go_away(&mut self, code: Code) {
        self.leaving = Some(code);
        self.pending.go_away = true;
    }

    fn next_serial(&mut self) -> Serial {
        let mut serial = self.last.map_or(Serial::FIRST, Serial::next);
        // Far fewer are open than there are serials.
        while self.streams.contains(serial) {
            serial = serial.next();
        }
        self.last = Some(serial);
        serial
    }

    /// Adds the frames of the header block in `block`, one behind the other. Returns the offset of the last one.
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
