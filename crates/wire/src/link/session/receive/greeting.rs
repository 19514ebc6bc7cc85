//! HELLO, which fixes the session for both ends, and heartbeats.

use super::super::super::LinkError;
use super::super::super::frame::Head;
use super::super::super::heads::Encoder;
use super::super::super::hello::{Hello, LinkLimits};
use super::super::streams::Waiting;
use super::super::{End, Path, Session, Streams, head_limits};
use super::MAX_CREDIT;

impl Session {
    pub(super) fn heartbeat(&mut self, head: Head, now_ms: u64) -> Result<(), LinkError> {
        if head.wanted {
            self.pending.heartbeat_answer = Some(head.number);
            return self.clock.stray(now_ms);
        }
        if self.clock.heartbeat_answered(head.number) {
            Ok(())
        } else {
            Err(LinkError::Rule("a heartbeat answer without a heartbeat"))
        }
    }

    pub(super) fn hello(
        &mut self,
        head: Head,
        payload: &[u8],
        now_ms: u64,
        streams: &mut impl Streams,
    ) -> Result<(), LinkError> {
        let mut hello = Hello::parse_payload(payload, head.response)?;
        hello.limits = hello.limits.heard_by(&self.ours);
        let same = self.begun && hello.token == self.token;
        if same {
            if hello.limits != self.theirs {
                return Err(LinkError::Rule("limits change within a session"));
            }
            self.out.resume(hello.received)?;
            streams.resumed();
        } else {
            match self.end {
                End::Server if self.begun => {
                    return Err(LinkError::Rule("the HELLO is for another session"));
                }
                End::Server => {
                    // The session that the client asked for is unknown here: this is a new one.
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
        self.away_since_ms = None;
        if self.end == End::Server {
            self.beside = hello.beside;
            self.pending.hello = true;
        }
        self.clock.heard(now_ms);
        self.wake(streams);
        Ok(())
    }

    /// At a client: the server begins a new session, either the one that the client asked for, or because it has lost
    /// the old one.
    pub(super) fn told_token(
        &mut self,
        hello: &Hello,
        streams: &mut impl Streams,
    ) -> Result<(), LinkError> {
        if self.begun {
            self.lose(streams);
            self.peer_leaving = false;
        }
        self.out.acknowledge(hello.received)?;
        // Streams that were opened before the HELLO also get the larger window.
        let wider = hello.limits.stream_window - LinkLimits::INITIAL.stream_window;
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
        waiting.sort_unstable();
        for serial in waiting {
            self.writable(serial, streams);
        }
        Ok(())
    }
}
