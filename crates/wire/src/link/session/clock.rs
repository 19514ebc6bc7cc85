//! Deadlines of a session.
//!
//! ```text
//!   something is waited for ──1 s without a byte──▶ HEARTBEAT ──2 s──▶ path dead
//!   sequenced bytes came ────500 ms after the last──▶ ACK
//!   idle ────────────────────1 s──▶ buffers are freed
//!   away ────────────────────retention──▶ session over
//! ```

use super::super::LinkError;
use super::{Path, Session, Streams, Verdict};

/// After this long without a byte, an end that waits sends a heartbeat.
const QUIET_MS: u64 = 1000;
/// After this long without a byte, the connection is dead.
const DEAD_MS: u64 = 3000;
/// Delay of an ACK, so that it can be sent with other frames.
const ACK_MS: u64 = 500;
/// How long an idle session keeps its buffers.
const TIDY_MS: u64 = 1000;
/// Limit on events without effect, in every `STRAYS_MS`.
const MAX_STRAYS: u32 = 100;
const STRAYS_MS: u64 = 1000;

/// Times, in milliseconds of the owner's clock.
#[derive(Debug, Default)]
pub(super) struct Clock {
    /// When the last byte arrived.
    heard_ms: u64,
    /// Since when this end has been waiting for an answer or an acknowledgement.
    waiting_since_ms: Option<u64>,
    /// When the last byte was sent or arrived.
    active_ms: u64,
    /// When an ACK is due.
    ack_at_ms: Option<u64>,
    /// The number of the last heartbeat; `asked` is set until it is answered.
    heartbeat: u32,
    asked: bool,
    /// When a heartbeat was last due; none is sent while another is unanswered.
    doubted_ms: Option<u64>,
    strays: u32,
    strays_since_ms: u64,
}

impl Clock {
    pub(super) fn connected(&mut self, now_ms: u64) {
        self.disconnected();
        self.heard_ms = now_ms;
        self.active_ms = now_ms;
    }

    pub(super) fn disconnected(&mut self) {
        self.waiting_since_ms = None;
        self.ack_at_ms = None;
        self.asked = false;
        self.doubted_ms = None;
    }

    pub(super) fn heard(&mut self, now_ms: u64) {
        self.heard_ms = now_ms;
        self.active_ms = now_ms;
        self.doubted_ms = None;
    }

    pub(super) fn active(&mut self, now_ms: u64) {
        self.active_ms = now_ms;
    }

    /// Starts or stops the wait for the peer.
    pub(super) fn waits(&mut self, waits: bool, now_ms: u64) {
        if !waits {
            self.waiting_since_ms = None;
            self.doubted_ms = None;
        } else if self.waiting_since_ms.is_none() {
            self.waiting_since_ms = Some(now_ms);
        }
    }

    pub(super) fn forget_waiting(&mut self) {
        self.waiting_since_ms = None;
        self.doubted_ms = None;
        self.ack_at_ms = None;
    }

    pub(super) fn acknowledge_later(&mut self, now_ms: u64) {
        self.ack_at_ms = Some(now_ms.saturating_add(ACK_MS));
    }

    pub(super) fn acknowledged(&mut self) {
        self.ack_at_ms = None;
    }

    /// The number of a new heartbeat, which is sent now.
    pub(super) fn heartbeat_goes(&mut self) -> u32 {
        self.heartbeat = (self.heartbeat + 1) & 0xff_ffff;
        self.asked = true;
        self.heartbeat
    }

    /// Whether this answers the last heartbeat.
    pub(super) fn heartbeat_answered(&mut self, number: u32) -> bool {
        std::mem::take(&mut self.asked) && number == self.heartbeat
    }

    /// Counts an event without effect.
    pub(super) fn stray(&mut self, now_ms: u64) -> Result<(), LinkError> {
        if now_ms.saturating_sub(self.strays_since_ms) >= STRAYS_MS {
            self.strays_since_ms = now_ms;
            self.strays = 0;
        }
        self.strays += 1;
        if self.strays > MAX_STRAYS {
            return Err(LinkError::Rule("too many events without effect"));
        }
        Ok(())
    }

    /// When to send a heartbeat, or after one, when to declare the connection dead.
    fn patience_ends_ms(&self) -> Option<u64> {
        let since = self.waiting_since_ms?.max(self.heard_ms);
        // If the heartbeat was late, the peer still gets the full time to answer.
        Some(match self.doubted_ms {
            None => since.saturating_add(QUIET_MS),
            Some(asked) => asked.saturating_add(DEAD_MS - QUIET_MS),
        })
    }
}

impl Session {
    /// When to call [`tick`](Self::tick) next, if nothing else happens before.
    #[must_use]
    pub fn next_deadline(&self) -> Option<u64> {
        if self.over {
            return None;
        }
        let tidy = (self.is_idle() && self.is_untidy())
            .then_some(self.clock.active_ms.saturating_add(TIDY_MS));
        let other = match self.path {
            Path::New => None,
            Path::Away { since_ms } => Some(since_ms.saturating_add(self.retention_ms())),
            Path::Greeting { since_ms } => Some(since_ms.saturating_add(DEAD_MS)),
            Path::Up => {
                // An ACK that is already pending needs no deadline.
                let ack = self.clock.ack_at_ms.filter(|_| !self.pending.ack);
                earlier(self.clock.patience_ends_ms(), ack)
            }
        };
        earlier(tidy, other)
    }

    /// Handles expired deadlines: sends heartbeats and ACKs, frees buffers, ends connections and sessions.
    pub fn tick(&mut self, now_ms: u64, streams: &mut impl Streams) -> Verdict {
        if self.over {
            self.lose(streams);
            return Verdict::SessionOver;
        }
        if self.is_idle() && now_ms >= self.clock.active_ms.saturating_add(TIDY_MS) {
            self.tidy();
        }
        match self.path {
            Path::New => {}
            Path::Away { since_ms } => {
                if now_ms >= since_ms.saturating_add(self.retention_ms()) {
                    self.fail_all(streams);
                    return Verdict::SessionOver;
                }
            }
            Path::Greeting { since_ms } => {
                if now_ms >= since_ms.saturating_add(DEAD_MS) {
                    return Verdict::PathDead;
                }
            }
            Path::Up => {
                if self.clock.ack_at_ms.is_some_and(|at| now_ms >= at) {
                    self.pending.ack = true;
                }
                let ends = self.clock.patience_ends_ms();
                if ends.is_some_and(|at| now_ms >= at) {
                    if self.clock.doubted_ms.is_some() {
                        return Verdict::PathDead;
                    }
                    self.clock.doubted_ms = Some(now_ms);
                    self.pending.heartbeat = !self.clock.asked;
                }
            }
        }
        Verdict::GoOn
    }

    /// How long both ends keep this session without a connection; 0 if it cannot be resumed.
    fn retention_ms(&self) -> u64 {
        if self.is_resumable() {
            self.ours.retention_ms.min(self.theirs.retention_ms).into()
        } else {
            0
        }
    }
}

fn earlier(one: Option<u64>, other: Option<u64>) -> Option<u64> {
    match (one, other) {
        (Some(one), Some(other)) => Some(one.min(other)),
        _ => one.or(other),
    }
}
