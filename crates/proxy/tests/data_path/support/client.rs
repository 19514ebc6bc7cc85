//! A raw connection: sends bytes as given, and parses received heads.

use std::io::{ErrorKind, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use rustix::net::sockopt::set_socket_linger;

use super::PATIENCE;

pub(crate) struct Client<S = TcpStream> {
    pub(crate) stream: S,
    unread: Vec<u8>,
}

#[derive(Debug)]
pub(crate) struct Response {
    pub(crate) head: String,
    pub(crate) body: Vec<u8>,
}

impl Response {
    pub(crate) fn status(&self) -> u16 {
        self.head
            .split(' ')
            .nth(1)
            .and_then(|status| status.parse().ok())
            .unwrap_or(0)
    }

    pub(crate) fn field(&self, name: &str) -> Option<&str> {
        field(&self.head, name)
    }

    /// The status, and the reason that the proxy gives; empty if there is none.
    pub(crate) fn verdict(&self) -> (u16, &str) {
        let reason = self.field("heddle-reason");
        assert_ne!(reason, Some(""), "a reason that is empty");
        (self.status(), reason.unwrap_or_default())
    }

    pub(crate) fn text(self) -> String {
        String::from_utf8(self.body).unwrap()
    }
}

/// The first value of a field in a head.
pub(crate) fn field<'a>(head: &'a str, name: &str) -> Option<&'a str> {
    head.lines().skip(1).find_map(|line| {
        let (key, value) = line.split_once(':')?;
        key.eq_ignore_ascii_case(name).then_some(value.trim())
    })
}

/// Whether the peer has closed the connection.
fn closed(error: &std::io::Error) -> bool {
    matches!(
        error.kind(),
        // The last two are those of a TLS connection: its end without `close_notify`, and an alert.
        ErrorKind::ConnectionReset
            | ErrorKind::BrokenPipe
            | ErrorKind::UnexpectedEof
            | ErrorKind::InvalidData
    )
}

impl Client {
    pub(crate) fn connect(address: SocketAddr) -> Client {
        let stream = TcpStream::connect(address).unwrap();
        stream.set_nodelay(true).unwrap();
        Client::of(stream)
    }

    /// Wraps either end of a connection.
    pub(crate) fn of(stream: TcpStream) -> Client {
        stream.set_read_timeout(Some(PATIENCE)).unwrap();
        Client {
            stream,
            unread: Vec::new(),
        }
    }

    /// Sends in a thread of its own while this thread reads.
    pub(crate) fn send_aside(&self, bytes: Vec<u8>) -> JoinHandle<()> {
        let mut stream = self.stream.try_clone().unwrap();
        thread::spawn(move || stream.write_all(&bytes).unwrap())
    }

    /// Makes the next close send a reset.
    pub(crate) fn reset_on_drop(&self) {
        set_socket_linger(&self.stream, Some(Duration::ZERO)).unwrap();
    }

    /// Closes the connection with a reset.
    pub(crate) fn reset(self) {
        self.reset_on_drop();
    }

    /// Waits for the end of the connection, which must be a reset.
    pub(crate) fn expect_reset(mut self) {
        let read = self.stream.read(&mut [0; 1]);
        let error = read.expect_err("a reset, not an end");
        assert_eq!(error.kind(), ErrorKind::ConnectionReset);
    }
}

impl<S: Read + Write> Client<S> {
    /// Wraps either end of a connection of any kind.
    pub(crate) fn over(stream: S) -> Client<S> {
        Client {
            stream,
            unread: Vec::new(),
        }
    }

    pub(crate) fn send(&mut self, bytes: impl AsRef<[u8]>) {
        self.stream.write_all(bytes.as_ref()).unwrap();
    }

    /// This client, after sending these bytes. A closed connection is ignored here, since a proxy may refuse a
    /// connection before its first byte: the next read shows it.
    pub(crate) fn sending(mut self, bytes: impl AsRef<[u8]>) -> Client<S> {
        match self.stream.write_all(bytes.as_ref()) {
            Err(error) if closed(&error) => {}
            sent => sent.unwrap(),
        }
        self
    }

    /// Sends a request and reads its response.
    pub(crate) fn ask(&mut self, request: impl AsRef<[u8]>) -> Response {
        self.send(request);
        self.response()
    }

    /// As an endpoint, sends a response with status 200 and this body.
    pub(crate) fn answer(&mut self, body: &str) {
        let length = body.len();
        self.send(format!(
            "HTTP/1.1 200 OK\r\nContent-Length: {length}\r\n\r\n{body}"
        ));
    }

    /// Reads a head including its blank line.
    pub(crate) fn head(&mut self) -> String {
        self.try_head().expect("a head, not the end of the stream")
    }

    /// Reads a head; `None` when the stream ends before one begins.
    pub(crate) fn try_head(&mut self) -> Option<String> {
        loop {
            if let Some(at) = self.unread.windows(4).position(|w| w == b"\r\n\r\n") {
                let rest = self.unread.split_off(at + 4);
                let head = std::mem::replace(&mut self.unread, rest);
                return Some(String::from_utf8(head).expect("text"));
            }
            if self.fill() == 0 {
                assert!(
                    self.unread.is_empty(),
                    "the head is whole: {:?}",
                    self.unread
                );
                return None;
            }
        }
    }

    /// Reads exactly this many bytes.
    pub(crate) fn exact(&mut self, n: usize) -> Vec<u8> {
        while self.unread.len() < n {
            assert!(
                self.fill() > 0,
                "the stream ended after {} of {n} bytes",
                self.unread.len()
            );
        }
        let rest = self.unread.split_off(n);
        std::mem::replace(&mut self.unread, rest)
    }

    /// Reads a response; without a Content-Length its body is empty.
    pub(crate) fn response(&mut self) -> Response {
        let head = self.head();
        let length = field(&head, "content-length").map_or(0, |n| n.parse().unwrap());
        let body = self.exact(length);
        Response { head, body }
    }

    /// Everything until the peer closes the connection.
    pub(crate) fn rest(&mut self) -> Vec<u8> {
        while self.fill() > 0 {}
        std::mem::take(&mut self.unread)
    }

    fn fill(&mut self) -> usize {
        let mut buffer = [0; 65536];
        let n = match self.stream.read(&mut buffer) {
            Ok(n) => n,
            Err(error) if closed(&error) => 0,
            Err(error) => panic!("reading: {error}"),
        };
        self.unread.extend_from_slice(&buffer[..n]);
        n
    }
}
