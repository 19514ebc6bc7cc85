//! A netlink socket for routing (`netlink(7)`, `rtnetlink(7)`), and the coding of its messages: a header, then
//! attributes that may contain others.
//!
//! Messages are built and read here as bytes, since `netlink-packet-route` knows few of the attributes of traffic
//! control, and refuses whole messages about disciplines of other programs that it does not understand.

use std::io;
use std::os::fd::AsFd;
use std::time::Duration;

use netlink_packet_core::{NLA_F_NESTED, NLM_F_ACK, NLM_F_DUMP, NLM_F_REQUEST, NlasIterator};
use netlink_sys::protocols::NETLINK_ROUTE;
use netlink_sys::{Socket, SocketAddr};
use rustix::net::sockopt::{Timeout, set_socket_timeout};

/// Bytes of the header of every message.
const HEADER: usize = 16;
/// Kinds of messages of the protocol itself.
const ERROR: u16 = 2;
const DONE: u16 = 3;
/// Flags of an error message: attributes follow; what was asked is not repeated.
const ACK_TLVS: u16 = 0x200;
/// The attribute of an error message that says it in words.
const ERROR_TEXT: u16 = 1;
/// Longest answer. The kernel makes dumps of at most 32 KiB.
const LONGEST: usize = 64 * 1_024;
/// The kernel answers at once; more waiting means that no answer comes.
const WITHIN: Duration = Duration::from_secs(5);

/// A socket in the network namespace of the thread that opened it.
#[derive(Debug)]
pub(super) struct Netlink {
    socket: Socket,
    sequence: u32,
    /// Of the last answer. Kept, so that a hundred questions a second need no memory anew.
    answer: Vec<u8>,
}

impl Netlink {
    /// Opens a socket.
    ///
    /// # Errors
    /// When no descriptors are left.
    pub(super) fn open() -> io::Result<Self> {
        let socket = Socket::new(NETLINK_ROUTE)?;
        socket.connect(&SocketAddr::new(0, 0))?;
        // Both say more with a refusal, and are not needed.
        let _older_kernel = socket.set_ext_ack(true);
        let _older_kernel = socket.set_cap_ack(true);
        set_socket_timeout(socket.as_fd(), Timeout::Recv, Some(WITHIN))?;
        Ok(Netlink {
            socket,
            sequence: 0,
            answer: Vec::with_capacity(LONGEST),
        })
    }

    /// Asks for a change, and waits until it is made.
    ///
    /// # Errors
    /// What the kernel says.
    pub(super) fn change(&mut self, request: Request) -> io::Result<()> {
        self.ask(request, NLM_F_ACK, &mut |_, _| Next::More)
    }

    /// Asks for one thing.
    ///
    /// # Errors
    /// What the kernel says, or `InvalidData` when it answers something else than a message of the kind `wanted`.
    pub(super) fn get<T>(
        &mut self,
        request: Request,
        wanted: u16,
        read: impl Fn(&[u8]) -> Option<T>,
    ) -> io::Result<T> {
        let mut found = None;
        // One message is the whole answer.
        self.ask(request, 0, &mut |kind, body| {
            if kind == wanted {
                found = read(body);
            }
            Next::Done
        })?;
        found.ok_or_else(not_understood)
    }

    /// Asks for all things of a kind, and calls `each` with the bytes of every one.
    ///
    /// # Errors
    /// What the kernel says.
    pub(super) fn all(&mut self, request: Request, mut each: impl FnMut(&[u8])) -> io::Result<()> {
        self.ask(request, NLM_F_DUMP, &mut |_, body| {
            each(body);
            Next::More
        })
    }

    /// Sends a request, and calls `each` with the kind and the bytes of each message until it or the kernel is done.
    fn ask(
        &mut self,
        mut request: Request,
        flags: u16,
        each: &mut dyn FnMut(u16, &[u8]) -> Next,
    ) -> io::Result<()> {
        self.sequence = self.sequence.wrapping_add(1);
        let message = request.finish(flags, self.sequence);
        self.socket.send(message, 0)?;
        loop {
            self.answer.clear();
            self.socket.recv(&mut self.answer, 0)?;
            for message in Messages(&self.answer) {
                let Message {
                    kind,
                    flags,
                    sequence,
                    body,
                } = message?;
                // An answer that came after the time for an earlier question.
                if sequence != self.sequence {
                    continue;
                }
                match kind {
                    ERROR => return done(body, flags),
                    DONE => return Ok(()),
                    kind => match each(kind, body) {
                        Next::More => {}
                        Next::Done => return Ok(()),
                    },
                }
            }
        }
    }
}

/// Whether more of an answer is to come.
enum Next {
    More,
    Done,
}

/// A message while it is built.
#[derive(Debug)]
pub(super) struct Request {
    bytes: Vec<u8>,
    flags: u16,
}

impl Request {
    /// A message of a kind, with flags beside those of every request, and with the fixed part of its kind.
    pub(super) fn new(kind: u16, flags: u16, fixed: &[u8]) -> Self {
        let mut bytes = vec![0; HEADER];
        bytes[4..6].copy_from_slice(&kind.to_ne_bytes());
        bytes.extend_from_slice(fixed);
        Request { bytes, flags }
    }

    /// Adds an attribute.
    pub(super) fn with(mut self, kind: u16, value: &[u8]) -> Self {
        push(&mut self.bytes, kind, value);
        self
    }

    /// Adds an attribute with a text, which ends with a zero.
    pub(super) fn with_text(self, kind: u16, text: &str) -> Self {
        let mut value = text.as_bytes().to_vec();
        value.push(0);
        self.with(kind, &value)
    }

    /// Adds an attribute that contains others.
    pub(super) fn with_nested(self, kind: u16, inner: &Attributes) -> Self {
        self.with(kind | NLA_F_NESTED, &inner.0)
    }

    fn finish(&mut self, flags: u16, sequence: u32) -> &[u8] {
        // A request has a few hundred bytes.
        let length = u32::try_from(self.bytes.len()).unwrap_or(u32::MAX);
        let flags = self.flags | flags | NLM_F_REQUEST;
        self.bytes[0..4].copy_from_slice(&length.to_ne_bytes());
        self.bytes[6..8].copy_from_slice(&flags.to_ne_bytes());
        self.bytes[8..12].copy_from_slice(&sequence.to_ne_bytes());
        &self.bytes
    }
}

/// Attributes within another one.
#[derive(Debug, Default)]
pub(super) struct Attributes(Vec<u8>);

impl Attributes {
    /// Adds an attribute.
    pub(super) fn with(mut self, kind: u16, value: &[u8]) -> Self {
        push(&mut self.0, kind, value);
        self
    }
}

/// Appends an attribute: its length, its kind, its value, and zeros up to a multiple of four.
fn push(to: &mut Vec<u8>, kind: u16, value: &[u8]) {
    // Values have a few hundred bytes at most.
    let length = u16::try_from(value.len() + 4).unwrap_or(u16::MAX);
    to.extend_from_slice(&length.to_ne_bytes());
    to.extend_from_slice(&kind.to_ne_bytes());
    to.extend_from_slice(value);
    to.resize(to.len().next_multiple_of(4), 0);
}

/// The value of an attribute of a kind, the last if there are several.
pub(super) fn attribute(of: &[u8], kind: u16) -> Option<&[u8]> {
    let all = NlasIterator::new(of).map_while(Result::ok);
    let found = all.filter(|one| one.kind() == kind).last()?;
    let end = usize::from(found.length());
    found.into_inner().get(4..end)
}

/// A text up to its zero.
pub(super) fn text(value: &[u8]) -> String {
    let text = value.split(|byte| *byte == 0).next().unwrap_or_default();
    String::from_utf8_lossy(text).into_owned()
}

/// A number at a place.
pub(super) fn number(bytes: &[u8], at: usize) -> Option<u32> {
    let bytes = bytes.get(at..)?.first_chunk::<4>()?;
    Some(u32::from_ne_bytes(*bytes))
}

/// A long number at a place.
pub(super) fn long(bytes: &[u8], at: usize) -> Option<u64> {
    let bytes = bytes.get(at..)?.first_chunk::<8>()?;
    Some(u64::from_ne_bytes(*bytes))
}

pub(super) fn not_understood() -> io::Error {
    let what = "an answer of the kernel's routing socket is not understood";
    io::Error::new(io::ErrorKind::InvalidData, what)
}

/// Messages that came together.
struct Messages<'a>(&'a [u8]);

struct Message<'a> {
    kind: u16,
    flags: u16,
    sequence: u32,
    body: &'a [u8],
}

impl<'a> Iterator for Messages<'a> {
    type Item = io::Result<Message<'a>>;

    fn next(&mut self) -> Option<Self::Item> {
        let all = self.0;
        if all.is_empty() {
            return None;
        }
        let length = number(all, 0).and_then(|length| usize::try_from(length).ok());
        let length = length.filter(|length| (HEADER..=all.len()).contains(length));
        let Some(length) = length else {
            self.0 = &[];
            return Some(Err(not_understood()));
        };
        self.0 = all.get(length.next_multiple_of(4)..).unwrap_or_default();
        let short = |at: usize| u16::from_ne_bytes([all[at], all[at + 1]]);
        Some(Ok(Message {
            kind: short(4),
            flags: short(6),
            sequence: number(all, 8).unwrap_or_default(),
            body: &all[HEADER..length],
        }))
    }
}

/// What an error message says: a negative number of `errno(3)`, or 0.
fn done(body: &[u8], flags: u16) -> io::Result<()> {
    let code = number(body, 0).ok_or_else(not_understood)?.cast_signed();
    if code == 0 {
        return Ok(());
    }
    let error = io::Error::from_raw_os_error(code.checked_neg().unwrap_or(i32::MAX));
    // The header of what was asked is repeated, and, without the option, the rest of it.
    let said = match flags & ACK_TLVS {
        0 => None,
        _ => body
            .get(4 + HEADER..)
            .and_then(|rest| attribute(rest, ERROR_TEXT)),
    };
    let kind = match error.raw_os_error() {
        Some(libc::ENODEV) => io::ErrorKind::NotFound,
        _ => error.kind(),
    };
    Err(match said {
        Some(said) => io::Error::new(kind, format!("{} ({error})", text(said))),
        None => io::Error::new(kind, error.to_string()),
    })
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::{Attributes, Messages, Request, attribute, done, text};

    #[test]
    fn attributes_are_aligned_and_found() {
        let inner = Attributes::default()
            .with(7, &[1, 2, 3, 4, 5])
            .with(8, &[9]);
        let request = Request::new(36, 0, &[0; 4])
            .with_text(1, "htb")
            .with_nested(2, &inner);
        let all = &request.bytes[20..];
        assert_eq!(all.len() % 4, 0);
        assert_eq!(attribute(all, 1).map(text).as_deref(), Some("htb"));
        let nested = attribute(all, 2).expect("there");
        assert_eq!(attribute(nested, 7), Some(&[1, 2, 3, 4, 5][..]));
        assert_eq!(attribute(nested, 8), Some(&[9][..]));
        assert_eq!(attribute(nested, 9), None);
    }

    proptest! {
        #[test]
        fn any_bytes_are_read_without_panic(bytes in prop::collection::vec(any::<u8>(), 0..200), short in 0u32..64) {
            let mut bytes = bytes;
            for message in Messages(&bytes).flatten() {
                let _any = (attribute(message.body, 1), done(message.body, message.flags));
            }
            // A length that fits makes it go deeper.
            if bytes.len() >= 4 {
                bytes[..4].copy_from_slice(&short.to_ne_bytes());
            }
            prop_assert!(Messages(&bytes).count() <= bytes.len());
            let _any = (attribute(&bytes, 1), done(&bytes, u16::MAX));
        }
    }
}
