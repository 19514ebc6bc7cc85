//! The other end of the Unix socket: one blocking request.

use std::fmt;
use std::io::{self, Read, Write};
use std::os::unix::net::UnixStream;
use std::time::Duration;

use rustix::net::sockopt::socket_peercred;
use rustix::process::geteuid;

use super::{Location, SocketError};

/// For each read and write.
const TIMEOUT: Duration = Duration::from_secs(10);
/// Longer answers are not ours.
const MAX_ANSWER_BYTES: u64 = 256 * 1024 * 1024;

/// Why there is no answer.
#[derive(Debug)]
pub enum ClientError {
    /// No process listens there.
    NotRunning(Location, io::Error),
    /// This user may not connect, whether a process listens there or not.
    Denied(Location, io::Error),
    /// No socket can have that path.
    BadPath(SocketError),
    /// The process that listens at the default path is neither this user's nor root's.
    Impostor(Location, u32),
    /// It did not answer in this time.
    Late(Location, Duration),
    /// It was closed without an answer, which is how a wrong user is treated.
    NoAnswer(Location, io::Error),
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
            ClientError::Status(status, body) => {
                write!(f, "heddle answered {status}: {}", body.trim_end())
            }
        }
    }
}

impl std::error::Error for ClientError {}

/// Asks a running process for a path and returns the body of its answer.
///
/// # Errors
/// When no process answers, or the answer has another status than 200.
pub fn get(at: &Location, path: &str) -> Result<String, ClientError> {
    get_within(at, path, TIMEOUT)
}

/// Asks a running process to do something, and returns the body of its answer.
///
/// # Errors
/// As [`get`].
pub fn post(at: &Location, path: &str, body: &str) -> Result<String, ClientError> {
    ask(at, ("POST", path, body), TIMEOUT)
}

/// The same, with another limit for each read and write.
pub(super) fn get_within(
    at: &Location,
    path: &str,
    limit: Duration,
) -> Result<String, ClientError> {
    ask(at, ("GET", path, ""), limit)
}

/// A method, a path and a body.
type Request<'a> = (&'a str, &'a str, &'a str);

fn ask(at: &Location, request: Request<'_>, limit: Duration) -> Result<String, ClientError> {
    at.check_length().map_err(ClientError::BadPath)?;
    let mut stream =
        UnixStream::connect(&at.path).map_err(|error| not_connected(at.clone(), error))?;
    check_server(at, &stream)?;
    let answer = exchange(&mut stream, request, limit).map_err(|error| match error.kind() {
        // What a socket says when its time is up.
        io::ErrorKind::WouldBlock | io::ErrorKind::TimedOut => ClientError::Late(at.clone(), limit),
        _ => ClientError::NoAnswer(at.clone(), error),
    })?;
    let (status, body) = split(&answer).ok_or_else(|| {
        ClientError::NoAnswer(at.clone(), io::Error::from(io::ErrorKind::UnexpectedEof))
    })?;
    match status {
        200 => Ok(body.to_owned()),
        status => Err(ClientError::Status(status, body.to_owned())),
    }
}

/// Starting a heddle would not help against another user's socket.
pub(super) fn not_connected(at: Location, error: io::Error) -> ClientError {
    match error.kind() {
        io::ErrorKind::PermissionDenied => ClientError::Denied(at, error),
        _ => ClientError::NotRunning(at, error),
    }
}

/// In a folder that all users can write, another user may have made our default folder first.
fn check_server(at: &Location, stream: &UnixStream) -> Result<(), ClientError> {
    let peer = socket_peercred(stream)
        .map_err(|error| ClientError::NotRunning(at.clone(), error.into()))?;
    let trusted = at.is_given || peer.uid.is_root() || peer.uid == geteuid();
    if trusted {
        Ok(())
    } else {
        Err(ClientError::Impostor(at.clone(), peer.uid.as_raw()))
    }
}

fn exchange(
    stream: &mut UnixStream,
    (method, path, body): Request<'_>,
    limit: Duration,
) -> io::Result<String> {
    stream.set_read_timeout(Some(limit))?;
    stream.set_write_timeout(Some(limit))?;
    let length = match method {
        "GET" => String::new(),
        _ => format!("content-length: {}\r\n", body.len()),
    };
    write!(
        stream,
        "{method} {path} HTTP/1.1\r\nhost: heddle\r\nconnection: close\r\n{length}\r\n{body}"
    )?;
    let mut answer = String::new();
    stream.take(MAX_ANSWER_BYTES).read_to_string(&mut answer)?;
    Ok(answer)
}

/// Status and body. Our server always gives a length and closes, so the body is all the rest.
fn split(answer: &str) -> Option<(u16, &str)> {
    let (head, body) = answer.split_once("\r\n\r\n")?;
    let status = head.strip_prefix("HTTP/1.1 ")?.get(..3)?.parse().ok()?;
    Some((status, body))
}
