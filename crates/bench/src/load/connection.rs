//! One keep-alive connection of the load generator.
//!
//! Idle → `send` → awaiting the head → awaiting the body → Idle. Anything else that arrives, or an
//! end of the stream, is a failure; the generator counts it and calls `reopen`.

use std::io::{ErrorKind, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::os::fd::{AsFd, BorrowedFd};
use std::time::Instant;

use super::request::Request;
use crate::http;

/// Maximum size of a response head, in bytes.
const MAX_HEAD: usize = 64 << 10;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum State {
    Idle,
    Head { due: Instant },
    Body { due: Instant, remaining: u64 },
}

pub(super) struct Connection {
    address: SocketAddr,
    stream: TcpStream,
    request: Request,
    /// A response head that has not arrived completely.
    partial: Vec<u8>,
    state: State,
}

/// How far an answer has come.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Progress {
    Waiting,
    /// The answer is complete and correct. Its request was due at `due`.
    Answered {
        due: Instant,
    },
}

/// Why an answer is wrong.
#[derive(Debug, PartialEq, Eq, Clone, Copy)]
pub(super) enum Failure {
    Closed,
    Status,
    Length,
    Malformed,
    Surplus,
}

impl Failure {
    pub(super) fn name(self) -> &'static str {
        match self {
            Failure::Closed => "connection closed",
            Failure::Status => "status not 200",
            Failure::Length => "wrong body length",
            Failure::Malformed => "malformed response",
            Failure::Surplus => "bytes not asked for",
        }
    }
}

impl Connection {
    pub(super) fn open(address: SocketAddr, request: Request) -> std::io::Result<Connection> {
        Ok(Connection {
            address,
            stream: connect(address)?,
            request,
            partial: Vec::new(),
            state: State::Idle,
        })
    }

    /// Replaces a broken connection by a fresh one.
    pub(super) fn reopen(&mut self) -> std::io::Result<()> {
        self.stream = connect(self.address)?;
        self.partial.clear();
        self.state = State::Idle;
        Ok(())
    }

    pub(super) fn busy(&self) -> bool {
        self.state != State::Idle
    }

    /// Sends the request. It fits into any socket buffer that is empty, so a short write is an error.
    pub(super) fn send(&mut self, due: Instant) -> std::io::Result<()> {
        self.state = State::Head { due };
        let bytes = self.request.next();
        let written = self.stream.write(bytes)?;
        if written == bytes.len() {
            Ok(())
        } else {
            Err(ErrorKind::WriteZero.into())
        }
    }

    /// Reads what has arrived.
    pub(super) fn receive(
        &mut self,
        scratch: &mut [u8],
        body_bytes: u64,
    ) -> Result<Progress, Failure> {
        let count = match self.stream.read(scratch) {
            Ok(0) => return Err(Failure::Closed),
            Ok(count) => count,
            Err(error) if error.kind() == ErrorKind::WouldBlock => return Ok(Progress::Waiting),
            Err(_) => return Err(Failure::Closed),
        };
        self.consume(&scratch[..count], body_bytes)
    }

    fn consume(&mut self, bytes: &[u8], body_bytes: u64) -> Result<Progress, Failure> {
        match self.state {
            State::Idle => Err(Failure::Surplus),
            State::Body { due, remaining } => self.body(due, remaining, bytes.len()),
            State::Head { due } => {
                let (response, available) = if self.partial.is_empty() {
                    (http::response(bytes), bytes.len())
                } else {
                    self.partial.extend_from_slice(bytes);
                    (http::response(&self.partial), self.partial.len())
                };
                let Some(head) = response.map_err(|_| Failure::Malformed)? else {
                    if self.partial.is_empty() {
                        self.partial.extend_from_slice(bytes);
                    }
                    let fits = available < MAX_HEAD;
                    return if fits {
                        Ok(Progress::Waiting)
                    } else {
                        Err(Failure::Malformed)
                    };
                };
                self.partial.clear();
                if head.status != 200 {
                    return Err(Failure::Status);
                }
                if head.content_length != body_bytes {
                    return Err(Failure::Length);
                }
                self.body(due, body_bytes, available - head.head_len)
            }
        }
    }

    fn body(&mut self, due: Instant, remaining: u64, arrived: usize) -> Result<Progress, Failure> {
        match remaining.checked_sub(arrived as u64) {
            None => Err(Failure::Surplus),
            Some(0) => {
                self.state = State::Idle;
                Ok(Progress::Answered { due })
            }
            Some(remaining) => {
                self.state = State::Body { due, remaining };
                Ok(Progress::Waiting)
            }
        }
    }
}

impl AsFd for Connection {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.stream.as_fd()
    }
}

fn connect(address: SocketAddr) -> std::io::Result<TcpStream> {
    let stream = TcpStream::connect(address)?;
    stream.set_nodelay(true)?;
    stream.set_nonblocking(true)?;
    Ok(stream)
}

#[cfg(test)]
mod tests;
