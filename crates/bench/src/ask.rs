//! One request on a connection of its own, for what has to be true before anything is measured.

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::time::Duration;

use anyhow::{Context, bail};

use super::http;

/// How long each step may take.
const PATIENCE: Duration = Duration::from_secs(5);
/// The longest answer that is read, in bytes.
const MAX_ANSWER: usize = 64 << 10;

/// Splits `AUTHORITY@ADDRESS:PORT`.
///
/// # Errors
/// When it is something else.
pub(super) fn target(text: &str) -> anyhow::Result<(&str, SocketAddr)> {
    let (authority, address) = text.split_once('@').context("no AUTHORITY@ADDRESS:PORT")?;
    Ok((authority, address.parse().context("no address")?))
}

/// Sends a request to `AUTHORITY@ADDRESS:PORT` and returns the status of its answer. `mark` is the value
/// of a field that no proxy looks at.
///
/// # Errors
/// When there is no answer in time, or none that is HTTP.
pub(super) fn status(to: &str, method: &str, path: &str, mark: &str) -> anyhow::Result<u16> {
    let (authority, address) = target(to)?;
    let stream = TcpStream::connect_timeout(&address, PATIENCE)?;
    let request = format!(
        "{method} {path} HTTP/1.1\r\nHost: {authority}\r\nX-Lab-Mark: {mark}\r\nContent-Length: 0\r\n\r\n"
    );
    answer(&stream, request.as_bytes())
}

/// What stands on a page, which must not be longer than [`MAX_ANSWER`].
///
/// # Errors
/// When there is no answer in time, or another one than 200.
pub(super) fn get(address: SocketAddr, path: &str) -> anyhow::Result<String> {
    let stream = TcpStream::connect_timeout(&address, PATIENCE)?;
    stream.set_read_timeout(Some(PATIENCE))?;
    page(stream, path, MAX_ANSWER as u64)
}

/// The body of a page of at most `max` bytes, which ends with its connection.
///
/// # Errors
/// When there is no such answer.
pub(super) fn page(mut stream: impl Read + Write, path: &str, max: u64) -> anyhow::Result<String> {
    let request = format!("GET {path} HTTP/1.1\r\nHost: lab\r\nConnection: close\r\n\r\n");
    stream.write_all(request.as_bytes())?;
    let mut answer = String::new();
    stream.take(max).read_to_string(&mut answer)?;
    let (head, body) = answer.split_once("\r\n\r\n").context("no answer")?;
    let status = head.split(' ').nth(1);
    anyhow::ensure!(status == Some("200"), "{path} is answered {status:?}");
    Ok(body.to_owned())
}

/// Sends a request on a connection that is open and reads the whole answer; returns its status.
///
/// # Errors
/// When there is no answer in time, or none that is HTTP.
pub(super) fn answer(mut stream: &TcpStream, request: &[u8]) -> anyhow::Result<u16> {
    stream.set_read_timeout(Some(PATIENCE))?;
    stream.set_write_timeout(Some(PATIENCE))?;
    stream.write_all(request)?;
    let mut bytes = Vec::new();
    loop {
        let mut chunk = [0; 4096];
        let count = stream.read(&mut chunk)?;
        anyhow::ensure!(count > 0, "the connection ended without an answer");
        bytes.extend_from_slice(&chunk[..count]);
        anyhow::ensure!(bytes.len() <= MAX_ANSWER, "the answer is too long");
        match http::response(&bytes) {
            Ok(None) => {}
            Ok(Some(head)) => {
                let whole = head.head_len as u64 + head.content_length;
                if bytes.len() as u64 >= whole {
                    return Ok(head.status);
                }
            }
            Err(wrong) => bail!("the answer is no HTTP that is understood here: {wrong:?}"),
        }
    }
}
