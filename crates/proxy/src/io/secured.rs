//! A side whose bytes go through a TLS session.
//!
//! Plaintext stays the truth for all other code: it counts as unwritten until the ciphertext that stands
//! for it is gone, and only what is decrypted counts as read. Ciphertext lives in a buffer of the thread
//! for the length of a call; between two calls a session holds what the socket did not take, and a record
//! that has not come whole.

use std::cell::{OnceCell, RefCell};
use std::io;
use std::mem;
use std::sync::Arc;
use std::task::{Context, Poll, ready};
use std::time::{Duration, Instant};

use heddle_model::{ServiceAccountName, SpiffeId};
use heddle_telemetry::{Counter, NodeBytes, NodeProtocol, WorkerStats};
use heddle_transport::{MAX_PLAINTEXT, MAX_SEALED, Peer, Protocol, RootId, Session};
use heddle_wire::buffer::{Chain, Pool};
use rustix::net::RecvFlags;
use tokio::io::Interest;
use tokio::net::TcpStream;

use super::socket::{once, poll_send, written};
use super::{SideError, SideResult};

/// Pieces of plaintext that are sealed at once, each into records of its own.
const PIECES: usize = 32;
/// Longer than any certificate lasts, in seconds: a hundred years.
const MAX_LIFE_S: u64 = 100 * 366 * 86_400;
/// Plaintext that is copied together to be sealed as one record (RFC 8446 section 5.1), in bytes.
pub(super) const RECORD_BYTES: usize = 16 * 1024;

thread_local! {
    /// Ciphertext that was just read.
    static READ: RefCell<Box<[u8]>> = RefCell::new(vec![0; MAX_PLAINTEXT].into());
    /// Ciphertext that is about to be written.
    static SEALED: RefCell<Box<[u8]>> = RefCell::new(vec![0; MAX_SEALED].into());
    /// Where bytes between nodes are counted. Of the thread, since sessions move.
    static STATS: OnceCell<Arc<WorkerStats>> = const { OnceCell::new() };
}

/// The thread is the Worker's with these numbers, from now on: what its sessions carry is counted there.
pub(crate) fn count_in(stats: &Arc<WorkerStats>) {
    STATS.with(|cell| {
        let first = cell.set(Arc::clone(stats));
        debug_assert!(first.is_ok(), "a thread is one Worker's");
    });
}

/// Counts plaintext that another node has said.
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

/// Nothing new is begun on a session whose certificates expire this soon.
const ENDING: Duration = Duration::from_secs(30);

/// What a connection between nodes rests on.
#[derive(Debug)]
pub(crate) struct Proof {
    /// The peer at the other end.
    pub(crate) peer: Peer,
    /// The root that vouches for it.
    pub(crate) root: RootId,
    /// When the first of both certificates expires, in seconds since 1970.
    pub(crate) not_after: u64,
}

/// An established session, and what of it is on its way.
#[derive(Debug)]
pub(crate) struct Secured {
    session: Session,
    proof: Arc<Proof>,
    /// In whose name it was made; `None` on the called side, and for callers that are not known.
    caller: Option<ServiceAccountName>,
    /// From when on nothing new is begun on it.
    ends: Instant,
    /// Ciphertext that the socket has not taken yet is what follows the first `sent` bytes.
    sealed: Vec<u8>,
    sent: usize,
    /// Bytes of plaintext that count as written when all of that is gone.
    stands_for: usize,
    /// The peer has said that it will send no more.
    ended: bool,
    /// We have.
    closing: bool,
}

impl Secured {
    /// A session that is established, and the root that vouches for its peer; `None` for one that is not. `now_s` is the time by which certificates
    /// are judged, in seconds since 1970.
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

    pub(super) fn is_ending(&self, now: Instant) -> bool {
        now >= self.ends
    }

    /// Whether nothing waits for the socket.
    pub(super) fn is_clear(&self) -> bool {
        self.sealed.is_empty()
    }

    /// Reads and decrypts until there are bytes for the inbox, up to about `want` of them. 0 means that
    /// the peer has said everything.
    ///
    /// # Errors
    /// [`io::ErrorKind::UnexpectedEof`] when the stream ends without the peer's saying so (RFC 8446
    /// section 6.1), [`SideError::Memory`] when no block is left; else what the socket or the
    /// session says.
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
            // An idle connection must hold no block, so the socket is asked before the pool.
            ready!(stream.poll_read_ready(cx))?;
            // Nothing that is decrypted may find no room.
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
                    // What the session answers by itself does not wait for the next message, unless we
                    // have said that nothing more comes.
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

    /// Reads and throws away. 0 means that nothing more comes.
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

    /// Reads once and hands out what is decrypted of it, if anything is. False means that nothing more comes.
    ///
    /// # Errors
    /// As [`Secured::poll_fill`], but that it takes no block.
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
                    // What the session answers by itself does not wait for the next message.
                    if !self.closing && !self.is_clear() {
                        let _later = self.poll_drain(stream, cx)?;
                    }
                    return Poll::Ready(Ok(true));
                }
            }
        }
        Poll::Ready(Ok(false))
    }

    /// One system call, and what is decrypted of it.
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

    /// Writes plaintext from the front of a chain, at most `limit` bytes. Returns how many are written,
    /// which the caller takes off the front; as long as it is pending, what was begun must stay there.
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

    /// Seals bytes as few records and sends them as far as the socket takes them. Returns whether it
    /// took all; if not, they count as unwritten.
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

    /// Seals bytes and sends them as far as the socket takes them; the rest is kept, and they count as
    /// written. Nothing may wait for the socket.
    ///
    /// # Errors
    /// When the session or the socket is broken.
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

    /// What is spoken.
    pub(super) fn protocol(&self) -> Option<Protocol> {
        self.session.protocol()
    }

    /// Says that nothing more will be sent.
    ///
    /// # Errors
    /// When the session or the socket is broken.
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

    /// Sends ciphertext, and keeps what the socket does not take.
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
