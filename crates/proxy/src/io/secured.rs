//! A side whose bytes go through a TLS session.
//!
//! All other code sees only plaintext. Plaintext counts as unwritten until its ciphertext is sent, and as read once it
//! is decrypted. During a call, ciphertext is in a buffer of the thread; between calls, a session holds only the
//! ciphertext that the socket did not accept, and an incomplete record.

use std::cell::{OnceCell, RefCell};
use std::io;
use std::mem;
use std::sync::Arc;
use std::task::{Context, Poll, ready};
use std::time::{Duration, Instant};

use heddle_model::{ServiceAccountName, SpiffeId, StockDestination};
use heddle_telemetry::{Counter, NodeBytes, NodeProtocol, WorkerStats};
use heddle_transport::{MAX_PLAINTEXT, MAX_SEALED, Peer, Protocol, RootId, Session};
use heddle_wire::buffer::{Chain, Pool};
use rustix::net::RecvFlags;
use tokio::io::Interest;
use tokio::net::TcpStream;

use super::socket::{once, poll_send, written};
use super::{SideError, SideResult};

/// Pieces of plaintext that are sealed in one call, each into its own records.
const PIECES: usize = 32;
/// Longest certificate lifetime that is counted, in seconds: a hundred years.
const MAX_LIFE_S: u64 = 100 * 366 * 86_400;
/// Most plaintext that is copied together to be sealed as one record (RFC 8446 section 5.1), in bytes.
pub(super) const RECORD_BYTES: usize = 16 * 1024;

thread_local! {
    /// Buffer for ciphertext that was just read.
    static READ: RefCell<Box<[u8]>> = RefCell::new(vec![0; MAX_PLAINTEXT].into());
    /// Buffer for ciphertext that is about to be written.
    static SEALED: RefCell<Box<[u8]>> = RefCell::new(vec![0; MAX_SEALED].into());
    /// Counters of bytes between nodes. They belong to the thread, since sessions move between threads.
    static STATS: OnceCell<Arc<WorkerStats>> = const { OnceCell::new() };
}

/// Makes this thread count the bytes of its sessions in the statistics of its Worker.
pub(crate) fn count_in(stats: &Arc<WorkerStats>) {
    STATS.with(|cell| {
        let first = cell.set(Arc::clone(stats));
        debug_assert!(first.is_ok(), "a thread is one Worker's");
    });
}

/// Counts plaintext that another node has sent.
pub(crate) fn count_received(protocol: Option<Protocol>, bytes: usize) {
    count(bytes, |stats| stats.received(counted_as(protocol)));
}

fn count_sent(protocol: Option<Protocol>, bytes: usize) {
    count(bytes, |stats| stats.sent(counted_as(protocol)));
}

fn counted_as(protocol: Option<Protocol>) -> NodeProtocol {
    match protocol {
        Some(Protocol::Link) => NodeProtocol::Link,
        Some(Protocol::Http2) => NodeProtocol::Http2,
        Some(Protocol::StockHttp) => NodeProtocol::StockHttp,
        Some(Protocol::StockBytes) => NodeProtocol::StockBytes,
        Some(Protocol::Http1) | None => NodeProtocol::Http1,
    }
}

fn count(bytes: usize, of: impl FnOnce(&NodeBytes) -> &Counter) {
    STATS.with(|cell| {
        if let Some(stats) = cell.get() {
            of(&stats.node_bytes).add(bytes as u64);
        }
    });
}

/// No new request begins on a session if one of its certificates expires within this time.
const ENDING: Duration = Duration::from_secs(30);

/// The proof on which a connection between nodes rests.
#[derive(Debug)]
pub(crate) struct Proof {
    /// The peer at the other end.
    pub(crate) peer: Peer,
    /// The root certificate that vouches for the peer.
    pub(crate) root: RootId,
    /// When the first of the two ends' certificates expires, in seconds since 1970.
    pub(crate) not_after: u64,
}

/// An established TLS session, and its ciphertext that is not sent yet.
#[derive(Debug)]
pub(crate) struct Secured {
    session: Session,
    proof: Arc<Proof>,
    /// The calling workload's account; `None` on the called side, and for unknown callers.
    caller: Option<ServiceAccountName>,
    /// Time from which no new request begins on it.
    ends: Instant,
    /// Ciphertext; its first `sent` bytes have been sent, the rest was not accepted by the socket yet.
    sealed: Vec<u8>,
    sent: usize,
    /// Bytes of plaintext that count as written once all of `sealed` is sent.
    stands_for: usize,
    /// The peer has sent `close_notify`.
    ended: bool,
    /// We have sent `close_notify`, or queued it.
    closing: bool,
}

impl Secured {
    /// Wraps an established session, with the root that vouches for its peer; `None` if the session has no peer
    /// identity. `now_s` is the time by which certificates are judged, in seconds since 1970.
    pub(crate) fn new(
        session: Session,
        root: RootId,
        caller: Option<ServiceAccountName>,
        now: Instant,
        now_s: u64,
    ) -> Option<Box<Self>> {
        let peer = session.peer()?.clone();
        let not_after = session.not_after();
        let left = Duration::from_secs(not_after.saturating_sub(now_s).min(MAX_LIFE_S));
        Some(Box::new(Secured {
            session,
            proof: Arc::new(Proof {
                peer,
                root,
                not_after,
            }),
            caller,
            ends: now + left.saturating_sub(ENDING),
            sealed: Vec::new(),
            sent: 0,
            stands_for: 0,
            ended: false,
            closing: false,
        }))
    }

    pub(super) fn proof(&self) -> &Arc<Proof> {
        &self.proof
    }

    pub(super) fn caller(&self) -> Option<&ServiceAccountName> {
        self.caller.as_ref()
    }

    pub(super) fn called(&self) -> Option<&SpiffeId> {
        self.session.server_id()
    }

    pub(super) fn asked(&self) -> Option<&StockDestination> {
        self.session.asked()
    }

    pub(super) fn is_ending(&self, now: Instant) -> bool {
        now >= self.ends
    }

    /// Whether no ciphertext waits for the socket.
    pub(super) fn is_clear(&self) -> bool {
        self.sealed.is_empty()
    }

    /// Reads and decrypts until the inbox has new bytes, up to about `want` of them. 0 means that the peer has closed
    /// the session.
    ///
    /// # Errors
    /// [`io::ErrorKind::UnexpectedEof`] if the stream ends without `close_notify` (RFC 8446 section 6.1),
    /// [`SideError::Memory`] if no buffer block is left; otherwise the error of the socket or the session.
    pub(super) fn poll_fill(
        &mut self,
        stream: &TcpStream,
        cx: &mut Context<'_>,
        inbox: &mut Chain,
        pool: &Pool,
        want: usize,
    ) -> Poll<SideResult<usize>> {
        let before = inbox.len();
        while !self.ended {
            // An idle connection must hold no block, so the socket is checked before a block is reserved.
            ready!(stream.poll_read_ready(cx))?;
            // Reserve room for everything that may be decrypted, including an incomplete record.
            let held = self.session.held();
            let room = inbox.reserve(pool, held + want.max(1));
            let got = match room.checked_sub(held) {
                None | Some(0) => Err(SideError::Memory),
                Some(room) => self.receive(stream, room, &mut |plain| {
                    let kept = inbox.extend_from_slice(pool, plain);
                    debug_assert!(kept.is_ok(), "there is room for what is decrypted");
                }),
            };
            inbox.release_spare();
            match got {
                Err(error) if error.is_too_early() => {}
                Err(error) => return Poll::Ready(Err(error)),
                Ok(()) => {
                    // The session's own messages are sent at once, and do not wait for the next message, unless we have
                    // sent `close_notify`.
                    if !self.closing && !self.is_clear() {
                        let _later = self.poll_drain(stream, cx)?;
                    }
                    if inbox.len() > before {
                        return Poll::Ready(Ok(inbox.len() - before));
                    }
                }
            }
        }
        Poll::Ready(Ok(0))
    }

    /// Reads and discards. 0 means that the peer has closed the session.
    pub(super) fn poll_discard(
        &mut self,
        stream: &TcpStream,
        cx: &mut Context<'_>,
    ) -> Poll<SideResult<usize>> {
        let mut bytes = 0;
        while !self.ended {
            ready!(stream.poll_read_ready(cx))?;
            match self.receive(stream, MAX_PLAINTEXT, &mut |plain| bytes += plain.len()) {
                Err(error) if error.is_too_early() => {}
                Err(error) => return Poll::Ready(Err(error)),
                Ok(()) if bytes > 0 => return Poll::Ready(Ok(bytes)),
                Ok(()) => {}
            }
        }
        Poll::Ready(Ok(0))
    }

    /// Reads once and passes on the decrypted bytes, if any. False means that the peer has closed the session.
    ///
    /// # Errors
    /// As [`Secured::poll_fill`], except that it needs no buffer block.
    pub(super) fn poll_receive(
        &mut self,
        stream: &TcpStream,
        cx: &mut Context<'_>,
        plain: &mut dyn FnMut(&[u8]),
    ) -> Poll<SideResult<bool>> {
        while !self.ended {
            ready!(stream.poll_read_ready(cx))?;
            match self.receive(stream, MAX_PLAINTEXT, plain) {
                Err(error) if error.is_too_early() => {}
                Err(error) => return Poll::Ready(Err(error)),
                Ok(()) => {
                    // The session's own messages are sent at once, and do not wait for the next message.
                    if !self.closing && !self.is_clear() {
                        let _later = self.poll_drain(stream, cx)?;
                    }
                    return Poll::Ready(Ok(true));
                }
            }
        }
        Poll::Ready(Ok(false))
    }

    /// Makes one system call, and decrypts the result.
    fn receive(
        &mut self,
        stream: &TcpStream,
        room: usize,
        plain: &mut dyn FnMut(&[u8]),
    ) -> SideResult<()> {
        READ.with_borrow_mut(|cipher| {
            let room = room.min(cipher.len());
            let cipher = &mut cipher[..room];
            let n = once(stream, Interest::READABLE, room, || {
                rustix::net::recv(stream, &mut *cipher, RecvFlags::empty()).map(|(n, _)| n)
            })?;
            if n == 0 {
                return Err(io::ErrorKind::UnexpectedEof.into());
            }
            let protocol = self.session.protocol();
            let received =
                self.session
                    .receive(&mut cipher[..n], &mut self.sealed, &mut |decrypted| {
                        count_received(protocol, decrypted.len());
                        plain(decrypted);
                    });
            self.ended = received?.closed;
            Ok(())
        })
    }

    /// Writes at most `limit` bytes of plaintext from the front of a chain. Returns how many are written, which the
    /// caller consumes. While it is pending, the bytes already sealed must stay at the front.
    pub(super) fn poll_write(
        &mut self,
        stream: &TcpStream,
        cx: &mut Context<'_>,
        from: &Chain,
        limit: usize,
    ) -> Poll<SideResult<usize>> {
        ready!(self.poll_drain(stream, cx))?;
        if self.stands_for > 0 {
            return Poll::Ready(Ok(mem::take(&mut self.stands_for)));
        }
        let limit = limit.min(MAX_PLAINTEXT);
        let mut taken = 0;
        SEALED.with_borrow_mut(|out| {
            let mut filled = 0;
            for run in from.runs().take(PIECES) {
                let piece = &run[..run.len().min(limit - taken)];
                filled += self.session.seal(piece, &mut out[filled..])?;
                taken += piece.len();
                if taken == limit {
                    break;
                }
            }
            count_sent(self.session.protocol(), taken);
            self.put(stream, cx, &out[..filled])
        })?;
        self.stands_for = taken;
        ready!(self.poll_drain(stream, cx))?;
        Poll::Ready(Ok(mem::take(&mut self.stands_for)))
    }

    /// Seals bytes into as few records as possible, and sends them as far as the socket accepts them. Returns whether
    /// it accepted all; if not, all of them count as unwritten.
    pub(super) fn send(
        &mut self,
        stream: &TcpStream,
        cx: &mut Context<'_>,
        plain: &[u8],
    ) -> SideResult<bool> {
        debug_assert!(self.is_clear() && self.stands_for == 0);
        SEALED.with_borrow_mut(|out| {
            let filled = self.session.seal(plain, out)?;
            count_sent(self.session.protocol(), plain.len());
            self.put(stream, cx, &out[..filled])
        })?;
        if self.is_clear() {
            return Ok(true);
        }
        self.stands_for = plain.len();
        Ok(false)
    }

    /// Seals bytes and sends them as far as the socket accepts them. The rest is kept, and all of them count as
    /// written. No ciphertext may wait for the socket.
    ///
    /// # Errors
    /// When the session or the socket fails.
    pub(super) fn put_all(
        &mut self,
        stream: &TcpStream,
        cx: &mut Context<'_>,
        plain: &[u8],
    ) -> SideResult<()> {
        debug_assert!(self.is_clear() && self.stands_for == 0);
        SEALED.with_borrow_mut(|out| {
            let filled = self.session.seal(plain, out)?;
            count_sent(self.session.protocol(), plain.len());
            self.put(stream, cx, &out[..filled])
        })
    }

    pub(super) fn protocol(&self) -> Option<Protocol> {
        self.session.protocol()
    }

    /// Sends `close_notify`: nothing more will be sent.
    ///
    /// # Errors
    /// When the session or the socket fails.
    pub(super) fn poll_close(
        &mut self,
        stream: &TcpStream,
        cx: &mut Context<'_>,
    ) -> Poll<SideResult<()>> {
        if !mem::replace(&mut self.closing, true) {
            SEALED.with_borrow_mut(|out| {
                let filled = self.session.close(out)?;
                self.sealed.extend_from_slice(&out[..filled]);
                SideResult::Ok(())
            })?;
        }
        self.poll_drain(stream, cx)
    }

    /// Sends ciphertext, and keeps what the socket does not accept.
    fn put(&mut self, stream: &TcpStream, cx: &mut Context<'_>, cipher: &[u8]) -> SideResult<()> {
        let n = written(poll_send(stream, cx, cipher))?;
        if n < cipher.len() {
            self.sealed.extend_from_slice(&cipher[n..]);
        }
        Ok(())
    }

    /// Writes the ciphertext that was kept.
    pub(super) fn poll_drain(
        &mut self,
        stream: &TcpStream,
        cx: &mut Context<'_>,
    ) -> Poll<SideResult<()>> {
        if self.sealed.is_empty() {
            return Poll::Ready(Ok(()));
        }
        while self.sent < self.sealed.len() {
            let n = ready!(poll_send(stream, cx, &self.sealed[self.sent..]))?;
            if n == 0 {
                return Poll::Ready(Err(io::ErrorKind::WriteZero.into()));
            }
            self.sent += n;
        }
        self.sent = 0;
        self.sealed = Vec::new();
        Poll::Ready(Ok(()))
    }
}
