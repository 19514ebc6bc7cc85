//! Client of the admin socket: one blocking request.

use std::fmt;
use std::io::{self, Read, Write};
use std::os::unix::net::UnixStream;
use std::time::Duration;

use rustix::net::sockopt::socket_peercred;
use rustix::process::geteuid;

use super::{Location, SocketError};

/// Timeout of each read and write.
const TIMEOUT: Duration = Duration::from_secs(10);
/// Longest answer that is read; heddle sends none as long as this.
const MAX_ANSWER_BYTES: u64 = 256 * 1024 * 1024;

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

/// Sends a GET request for a path to a running process, and returns the body of the answer.
///
/// # Errors
/// When no process answers, or the status of the answer is not 200.
pub fn get(at: &Location, path: &str) -> Result<String, ClientError> {
    get_within(at, path, TIMEOUT)
}

/// Sends a POST request to a running process, and returns the body of the answer.
///
/// # Errors
/// As [`get`].
pub fn post(at: &Location, path: &str, body: &str) -> Result<String, ClientError> {
    ask(at, ("POST", path, body), TIMEOUT)
}

/// Like [`get`], with another timeout for each read and write.
///
/// # Errors
/// As [`get`].
pub fn get_within(at: &Location, path: &str, limit: Duration) -> Result<String, ClientError> {
    ask(at, ("GET", path, ""), limit)
}

/// Method, path and body.
type Request<'a> = (&'a str, &'a str, &'a str);

fn ask(at: &Location, request: Request<'_>, limit: Duration) -> Result<String, ClientError> {
    at.check_length().map_err(ClientError::BadPath)?;
    let mut stream =
        UnixStream::connect(&at.path).map_err(|error| not_connected(at.clone(), error))?;
    check_server(at, &stream)?;
    let answer = exchange(&mut stream, request, limit).map_err(|error| match error.kind() {
        // Errors of a socket whose timeout has expired.
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

/// Tells another user's socket from a missing one: starting a heddle would not help with the former.
pub(super) fn not_connected(at: Location, error: io::Error) -> ClientError {
    match error.kind() {
        io::ErrorKind::PermissionDenied => ClientError::Denied(at, error),
        _ => ClientError::NotRunning(at, error),
    }
}

/// Checks that the server is this user or root: in `/tmp`, another user may have created our default folder first.
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

/// Splits an answer into status and body. The server closes the connection after each answer, so the rest is the body.
fn split(answer: &str) -> Option<(u16, &str)> {
    let (head, body) = answer.split_once("\r\n\r\n")?;
    let status = head.strip_prefix("HTTP/1.1 ")?.get(..3)?.parse().ok()?;
    Some((status, body))
}
