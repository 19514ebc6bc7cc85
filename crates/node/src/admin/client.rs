//! Client of the admin socket: one blocking request, with a bound on its time and on its answer.

use std::fmt;
use std::io::{self, Read, Write};
use std::os::unix::net::UnixStream;
use std::time::{Duration, Instant};

use heddle_model::{printable, shortened};
use rustix::net::sockopt::{Timeout, set_socket_timeout, socket_peercred};
use rustix::net::{AddressFamily, SocketAddrUnix, SocketFlags, SocketType, connect, socket_with};
use rustix::process::geteuid;

use super::{Location, SocketError};

#[cfg(test)]
mod tests;

/// What one question may take.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// From the connect to the last byte of the answer.
    pub time: Duration,
    /// Longest answer, in bytes, with its head.
    pub bytes: usize,
}

impl Limits {
    /// For an operator who waits: the time is what the server gives itself. Heddle sends no answer as long as this.
    pub const OPERATOR: Limits = Limits {
        time: Duration::from_secs(10),
        bytes: 256 << 20,
    };
}

/// Characters that are shown of an answer that is an error. Another program may be at the socket.
const MAX_SHOWN: usize = 200;
/// Bytes that are read at a time.
const PIECE: usize = 16 * 1024;

/// Why a request failed.
#[derive(Debug)]
pub enum ClientError {
    /// No process listens at the socket.
    NotRunning(Location, io::Error),
    /// This user may not connect, whether a process listens there or not.
    Denied(Location, io::Error),
    /// The path is too long for a socket.
    BadPath(SocketError),
    /// The process that listens at the default path is neither this user's nor root's.
    Impostor(Location, u32),
    /// The process did not answer within this time.
    Late(Location, Duration),
    /// The connection was closed without an answer, as the server does for a wrong user.
    NoAnswer(Location, io::Error),
    /// The answer is longer than so many bytes.
    TooLong(Location, usize),
    /// An answer other than 200.
    Status(u16, String),
}

impl fmt::Display for ClientError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            ClientError::NotRunning(at, error) => write!(
                f,
                "no heddle answers at {}: {error}; start one with {}, or name its \
                 socket with --socket",
                at.path.display(),
                at.command
            ),
            ClientError::Denied(at, error) => write!(
                f,
                "{}: {error}: it belongs to another user; ask as that user or as root, or name the \
                 socket of a heddle of your own with --socket",
                at.path.display()
            ),
            ClientError::BadPath(error) => error.fmt(f),
            ClientError::Impostor(at, uid) => {
                write!(
                    f,
                    "{} is served by user {uid}, not by you or root",
                    at.path.display()
                )
            }
            ClientError::Late(at, waited) => write!(
                f,
                "heddle at {} did not answer within {} s: it is busy, stopped, or has no descriptor \
                 left",
                at.path.display(),
                waited.as_secs_f32()
            ),
            ClientError::NoAnswer(at, error) => write!(
                f,
                "heddle at {} gave no answer: {error}; it answers its own user and root",
                at.path.display()
            ),
            ClientError::TooLong(at, bytes) => write!(
                f,
                "the answer at {} has more than {bytes} bytes: is it another program's socket?",
                at.path.display()
            ),
            ClientError::Status(status, body) => {
                let body = shortened(body.trim_end(), MAX_SHOWN);
                write!(f, "heddle answered {status}: {}", printable(&body))
            }
        }
    }
}

impl std::error::Error for ClientError {}

/// Sends a GET request for a path to a running process, and returns the body of the answer.
///
/// # Errors
/// When no process answers within [`Limits::OPERATOR`], or the status of the answer is not 200.
pub fn get(at: &Location, path: &str) -> Result<String, ClientError> {
    get_within(at, path, Limits::OPERATOR)
}

/// Sends a POST request to a running process, and returns the body of the answer.
///
/// # Errors
/// As [`get`].
pub fn post(at: &Location, path: &str, body: &str) -> Result<String, ClientError> {
    ask(at, ("POST", path, body), Limits::OPERATOR)
}

/// Like [`get`], with other limits.
///
/// # Errors
/// As [`get`].
pub fn get_within(at: &Location, path: &str, limits: Limits) -> Result<String, ClientError> {
    ask(at, ("GET", path, ""), limits)
}

/// An answer, and the process that gave it.
#[derive(Debug)]
pub struct Reply {
    /// The body of the answer.
    pub body: String,
    /// ID of the process that listens at the socket; 0 if it is not visible here, as in another PID namespace.
    pub process: i32,
}

/// Like [`get_within`], and says which process has answered.
///
/// # Errors
/// As [`get`].
pub fn reply_within(at: &Location, path: &str, limits: Limits) -> Result<Reply, ClientError> {
    exchange(at, ("GET", path, ""), limits)
}

/// Method, path and body.
type Request<'a> = (&'a str, &'a str, &'a str);

fn ask(at: &Location, request: Request<'_>, limits: Limits) -> Result<String, ClientError> {
    Ok(exchange(at, request, limits)?.body)
}

fn exchange(at: &Location, request: Request<'_>, limits: Limits) -> Result<Reply, ClientError> {
    at.check_length().map_err(ClientError::BadPath)?;
    let end = End(Instant::now() + limits.time);
    let late = || ClientError::Late(at.clone(), limits.time);
    let mut stream = connected(at, end).map_err(|error| match is_late(&error) {
        true => late(),
        false => not_connected(at.clone(), error),
    })?;
    let process = check_server(at, &stream)?;
    let no_answer = |error| ClientError::NoAnswer(at.clone(), error);
    let exchanged = send(&mut stream, request, end)
        .and_then(|()| receive(&mut stream, limits.bytes, end))
        .map_err(|error| match is_late(&error) {
            true => late(),
            false => no_answer(error),
        })?;
    let answer = exchanged.ok_or_else(|| ClientError::TooLong(at.clone(), limits.bytes))?;
    let answer = String::from_utf8(answer)
        .map_err(|error| no_answer(io::Error::new(io::ErrorKind::InvalidData, error)))?;
    let (status, body) =
        split(&answer).ok_or_else(|| no_answer(io::ErrorKind::UnexpectedEof.into()))?;
    match status {
        200 => Ok(Reply {
            body: body.to_owned(),
            process,
        }),
        status => Err(ClientError::Status(status, body.to_owned())),
    }
}

/// When a question has to be over.
#[derive(Clone, Copy)]
struct End(Instant);

impl End {
    /// The time that is left.
    ///
    /// # Errors
    /// None is left.
    fn left(self) -> io::Result<Duration> {
        let left = self.0.saturating_duration_since(Instant::now());
        match left.is_zero() {
            // It would mean that there is no timeout.
            true => Err(io::ErrorKind::TimedOut.into()),
            false => Ok(left),
        }
    }
}

/// Whether it is the error of a socket whose timeout has expired.
fn is_late(error: &io::Error) -> bool {
    matches!(
        error.kind(),
        io::ErrorKind::WouldBlock | io::ErrorKind::TimedOut
    )
}

/// Connects. A server that does not accept has a queue of connections, and while that is full the kernel lets the next one
/// wait: for `SO_SNDTIMEO` at most (`unix(7)`, `socket(7)`).
fn connected(at: &Location, end: End) -> io::Result<UnixStream> {
    let (family, kind) = (AddressFamily::UNIX, SocketType::STREAM);
    let socket = socket_with(family, kind, SocketFlags::CLOEXEC, None)?;
    let address = SocketAddrUnix::new(&at.path)?;
    loop {
        set_socket_timeout(&socket, Timeout::Send, Some(end.left()?))?;
        match connect(&socket, &address) {
            Ok(()) => return Ok(UnixStream::from(socket)),
            Err(rustix::io::Errno::INTR) => {}
            Err(error) => return Err(error.into()),
        }
    }
}

/// Tells another user's socket from a missing one: starting a heddle would not help with the former.
pub(super) fn not_connected(at: Location, error: io::Error) -> ClientError {
    match error.kind() {
        io::ErrorKind::PermissionDenied => ClientError::Denied(at, error),
        _ => ClientError::NotRunning(at, error),
    }
}

/// Checks that the server is this user or root: in `/tmp`, another user may have created our default folder first. Returns
/// the ID of its process.
fn check_server(at: &Location, stream: &UnixStream) -> Result<i32, ClientError> {
    let peer = socket_peercred(stream)
        .map_err(|error| ClientError::NotRunning(at.clone(), error.into()))?;
    let trusted = at.is_given || peer.uid.is_root() || peer.uid == geteuid();
    if trusted {
        Ok(peer.pid.as_raw_nonzero().get())
    } else {
        Err(ClientError::Impostor(at.clone(), peer.uid.as_raw()))
    }
}

fn send(stream: &mut UnixStream, (method, path, body): Request<'_>, end: End) -> io::Result<()> {
    let length = match method {
        "GET" => String::new(),
        _ => format!("content-length: {}\r\n", body.len()),
    };
    let request = format!(
        "{method} {path} HTTP/1.1\r\nhost: heddle\r\nconnection: close\r\n{length}\r\n{body}"
    );
    let mut rest = request.as_bytes();
    while !rest.is_empty() {
        stream.set_write_timeout(Some(end.left()?))?;
        match stream.write(rest) {
            Ok(0) => return Err(io::ErrorKind::WriteZero.into()),
            Ok(written) => rest = &rest[written..],
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
    Ok(())
}

/// Reads to the end; `None` when there are more than so many bytes.
fn receive(stream: &mut UnixStream, bytes: usize, end: End) -> io::Result<Option<Vec<u8>>> {
    let mut answer = Vec::new();
    let mut piece = vec![0; PIECE];
    loop {
        // Anew for each piece: a server that sends a byte now and then is late, too.
        stream.set_read_timeout(Some(end.left()?))?;
        let read = match stream.read(&mut piece) {
            Ok(0) => return Ok(Some(answer)),
            Ok(read) => read,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
            Err(error) => return Err(error),
        };
        if answer.len() + read > bytes {
            return Ok(None);
        }
        answer.extend_from_slice(&piece[..read]);
    }
}

/// Splits an answer into status and body. The server closes the connection after each answer, so the rest is the body.
fn split(answer: &str) -> Option<(u16, &str)> {
    let (head, body) = answer.split_once("\r\n\r\n")?;
    let status = head.strip_prefix("HTTP/1.1 ")?.get(..3)?.parse().ok()?;
    Some((status, body))
}
