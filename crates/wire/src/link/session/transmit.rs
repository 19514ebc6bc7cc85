//! Sending bytes.

use super::super::frame::{FrameKind, Head};
use super::super::hello::{Hello, VERSION};
use super::{End, Path, Session};

/// From this many unacknowledged bytes on, the next transmit includes an ACK.
const ACK_ALONG_BYTES: u64 = 4 * 1024;

impl Session {
    /// Whether [`transmit`](Self::transmit) has output that should be sent now.
    #[must_use]
    pub fn wants_transmit(&self) -> bool {
        if self.over || matches!(self.path, Path::New | Path::Away { .. }) {
            return false;
        }
        let pending = &self.pending;
        pending.hello
            || self.path == Path::Up
                && (pending.ack
                    || pending.go_away
                    || pending.heartbeat
                    || pending.heartbeat_answer.is_some())
            || self.may_send() && self.out.has_more()
    }

    /// Appends the frames to send now to `out`: whole frames, about `max` bytes. They count as handed to the current
    /// connection: write them in this order, or give the connection up.
    pub fn transmit(&mut self, out: &mut Vec<u8>, max: usize, now_ms: u64) {
        if self.over || matches!(self.path, Path::New | Path::Away { .. }) {
            return;
        }
        let before = out.len();
        if std::mem::take(&mut self.pending.hello) {
            self.write_hello(out);
        }
        if self.path == Path::Up {
            self.write_events(out);
        }
        if self.may_send() && self.out.has_more() {
            self.out
                .hand_out(out, max.saturating_sub(out.len() - before));
        }
        if out.len() > before {
            self.clock.active(now_ms);
            self.clock.waits(!self.is_idle(), now_ms);
        }
    }

    fn write_hello(&mut self, out: &mut Vec<u8>) {
        let hello = Hello {
            server: self.end == End::Server,
            version: VERSION,
            oldest: VERSION,
            token: self.token,
            received: self.received,
            limits: self.ours,
            beside: self.end == End::Client && self.beside,
            offline: self.end == End::Client && self.offline,
        };
        hello.write_to(out);
        self.acknowledged();
    }

    fn write_events(&mut self, out: &mut Vec<u8>) {
        let pending = std::mem::take(&mut self.pending);
        if pending.ack || self.received - self.acknowledged >= ACK_ALONG_BYTES {
            // A frame head carries the low 24 bits.
            let head = Head::new(FrameKind::Ack, self.received as u32);
            out.extend_from_slice(&head.bytes());
            self.acknowledged();
        }
        if let Some(number) = pending.heartbeat_answer {
            let mut head = Head::new(FrameKind::Heartbeat, number);
            head.response = true;
            out.extend_from_slice(&head.bytes());
        }
        if pending.heartbeat {
            let mut head = Head::new(FrameKind::Heartbeat, self.clock.heartbeat_goes());
            head.wanted = true;
            out.extend_from_slice(&head.bytes());
        }
        if let Some(farewell) = self.farewell().filter(|_| pending.go_away) {
            out.extend_from_slice(&farewell.bytes());
        }
    }

    /// Everything received so far is now acknowledged.
    fn acknowledged(&mut self) {
        self.acknowledged = self.received;
        self.clock.acknowledged();
    }
}
