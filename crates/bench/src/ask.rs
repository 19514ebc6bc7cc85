//! A single request on a connection of its own, for checks before anything is measured.

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::time::Duration;

use anyhow::{Context, bail};

use super::http;

/// Timeout of each step.
const PATIENCE: Duration = Duration::from_secs(5);
/// Maximum size of an answer, in bytes.
const MAX_ANSWER: usize = 64 << 10;

/// Splits `AUTHORITY@ADDRESS:PORT`.
///
/// # Errors
/// When `text` has another form, or the address is not an IP address with a port.
pub(super) fn target(text: &str) -> anyhow::Result<(&str, SocketAddr)> {
    let (authority, address) = text.split_once('@').context("not AUTHORITY@ADDRESS:PORT")?;
    Ok((authority, address.parse().context("not ADDRESS:PORT")?))
}

/// Sends a request to `AUTHORITY@ADDRESS:PORT` and returns the status of the answer. `mark` is the value of the header
/// `X-Lab-Mark`, which no proxy looks at.
///
/// # Errors
/// When no answer comes in time, or the answer is not HTTP.
pub(super) fn status(to: &str, method: &str, path: &str, mark: &str) -> anyhow::Result<u16> {
    let (authority, address) = target(to)?;
    let stream = TcpStream::connect_timeout(&address, PATIENCE)?;
    let request = format!(
        "{method} {path} HTTP/1.1\r\nHost: {authority}\r\nX-Lab-Mark: {mark}\r\nContent-Length: 0\r\n\r\n"
    );
    answer(&stream, request.as_bytes())
}

/// The body of a page. An answer longer than [`MAX_ANSWER`], its head included, is cut off there.
///
/// # Errors
/// When no answer comes in time, or its status is not 200.
pub(super) fn get(address: SocketAddr, path: &str) -> anyhow::Result<String> {
    let stream = TcpStream::connect_timeout(&address, PATIENCE)?;
    stream.set_read_timeout(Some(PATIENCE))?;
    page(stream, path, MAX_ANSWER as u64)
}

/// The body of an answer that ends when its connection closes. At most `max` bytes are read, the head included.
///
/// # Errors
/// When the answer has no complete head, or its status is not 200.
pub(super) fn page(mut stream: impl Read + Write, path: &str, max: u64) -> anyhow::Result<String> {
    let request = format!("GET {path} HTTP/1.1\r\nHost: lab\r\nConnection: close\r\n\r\n");
    stream.write_all(request.as_bytes())?;
    let mut answer = String::new();
    stream.take(max).read_to_string(&mut answer)?;
    let (head, body) = answer.split_once("\r\n\r\n").context("no complete head")?;
    let status = head.split(' ').nth(1);
    anyhow::ensure!(status == Some("200"), "{path} got status {status:?}");
    Ok(body.to_owned())
}

/// Sends a request on an open connection and reads the whole answer; returns its status.
///
/// # Errors
/// When no answer comes in time, or the answer is not HTTP.
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
            Err(wrong) => bail!("the answer cannot be parsed as HTTP: {wrong:?}"),
        }
    }
}
