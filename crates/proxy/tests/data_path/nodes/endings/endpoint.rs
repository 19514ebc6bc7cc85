//! An endpoint that can end an exchange in every way; the path of the request selects which.

use std::io::{self, BufRead, BufReader, Read, Write};
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, Weak};
use std::thread;
use std::time::Duration;

use crate::support::field;

/// Bytes of a response that exceeds all buffers on the way together.
const LONG: usize = 3_000_000;

pub(in crate::nodes) struct Endpoint {
    pub(in crate::nodes) address: SocketAddr,
    gone: Arc<AtomicBool>,
    open: Arc<Mutex<Vec<Weak<TcpStream>>>>,
}

impl Endpoint {
    pub(in crate::nodes) fn new() -> Endpoint {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let endpoint = Endpoint {
            address: listener.local_addr().unwrap(),
            gone: Arc::default(),
            open: Arc::default(),
        };
        endpoint.serve(listener);
        endpoint
    }

    fn serve(&self, listener: TcpListener) {
        let (gone, open) = (Arc::clone(&self.gone), Arc::clone(&self.open));
        thread::spawn(move || {
            for stream in listener.incoming().flatten() {
                if gone.load(Ordering::SeqCst) {
                    return;
                }
                let stream = Arc::new(stream);
                open.lock().unwrap().push(Arc::downgrade(&stream));
                thread::spawn(move || drop(converse(&stream)));
            }
        });
    }

    /// Closes every connection, and refuses new ones until [`Endpoint::comes_back`].
    pub(super) fn goes(&self) {
        self.gone.store(true, Ordering::SeqCst);
        // Accepting this connection wakes the listener's thread, which then ends.
        drop(TcpStream::connect(self.address));
        while TcpStream::connect(self.address).is_ok() {
            thread::yield_now();
        }
        let open = std::mem::take(&mut *self.open.lock().unwrap());
        for stream in open.iter().filter_map(Weak::upgrade) {
            let _gone = stream.shutdown(Shutdown::Both);
        }
    }

    pub(super) fn comes_back(&self) {
        self.gone.store(false, Ordering::SeqCst);
        self.serve(TcpListener::bind(self.address).unwrap());
    }
}

/// Answers one request after the other, until a response closes the connection.
fn converse(stream: &TcpStream) -> io::Result<()> {
    stream.set_nodelay(true)?;
    let (mut from, mut to) = (BufReader::new(stream), stream);
    loop {
        let mut head = String::new();
        while !head.ends_with("\r\n\r\n") {
            if from.read_line(&mut head)? == 0 {
                return Ok(());
            }
        }
        let path = head.split(' ').nth(1).unwrap_or_default();
        match path {
            // The endpoint reads nothing of the body before these responses.
            "/early" => {
                to.write_all(b"HTTP/1.1 405 No\r\nConnection: close\r\nContent-Length: 0\r\n\r\n")?;
                stream.shutdown(Shutdown::Write)?;
                return io::copy(&mut from, &mut io::sink()).map(drop);
            }
            "/early-interim" => to.write_all(
                b"HTTP/1.1 103 Early Hints\r\n\r\nHTTP/1.1 405 No\r\nContent-Length: 2\r\n\r\nno",
            )?,
            "/early-reset" => {
                to.write_all(b"HTTP/1.1 413 No\r\nConnection: close\r\nContent-Length: 0\r\n\r\n")?;
                resets(stream);
                return Ok(());
            }
            "/upgrade" | "/upgrade-ends" | "/upgrade-resets" => {
                to.write_all(
                    b"HTTP/1.1 101 Switching Protocols\r\nConnection: upgrade\r\nUpgrade: echo\r\n\r\n",
                )?;
                return converted(path, stream, from);
            }
            "/upgrade-refused" => {
                to.write_all(b"HTTP/1.1 426 No\r\nContent-Length: 2\r\n\r\nno")?;
                continue;
            }
            _ => {}
        }
        let body = body(&head, &mut from)?;
        match path {
            "/reset" => {
                resets(stream);
                return Ok(());
            }
            "/close" => return Ok(()),
            "/reset-in-body" | "/close-in-body" => {
                to.write_all(b"HTTP/1.1 200 OK\r\nContent-Length: 100\r\n\r\nbegun")?;
                thread::park_timeout(Duration::from_millis(5));
                if path == "/reset-in-body" {
                    resets(stream);
                }
                return Ok(());
            }
            "/until-close" => return to.write_all(b"HTTP/1.1 200 OK\r\n\r\nwhole"),
            "/silent" => return io::copy(&mut from, &mut io::sink()).map(drop),
            "/garbage" => return to.write_all(b"NOTHING LIKE IT\r\n\r\n"),
            "/talkative" => to.write_all(b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nokmore")?,
            "/empty" => to.write_all(b"HTTP/1.1 204 No Content\r\n\r\n")?,
            "/chunks" => to.write_all(
                b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n2\r\nok\r\n0\r\nX-Sum: 1\r\n\r\n",
            )?,
            "/long" => {
                write!(to, "HTTP/1.1 200 OK\r\nContent-Length: {LONG}\r\n\r\n")?;
                to.write_all(&vec![b'x'; LONG])?;
            }
            _ => {
                write!(to, "HTTP/1.1 200 OK\r\nContent-Length: {}\r\n\r\n", body.len())?;
                to.write_all(&body)?;
            }
        }
    }
}

/// Makes the next close send a reset.
fn resets(stream: &TcpStream) {
    let _gone = rustix::net::sockopt::set_socket_linger(stream, Some(Duration::ZERO));
}

/// After an upgrade, sends back every byte.
fn converted(path: &str, stream: &TcpStream, mut from: impl Read) -> io::Result<()> {
    let mut to = stream;
    if path == "/upgrade" {
        io::copy(&mut from, &mut to)?;
        return stream.shutdown(Shutdown::Write);
    }
    let mut said = [0; 2];
    from.read_exact(&mut said)?;
    to.write_all(&said)?;
    if path == "/upgrade-resets" {
        resets(stream);
        return Ok(());
    }
    stream.shutdown(Shutdown::Write)?;
    io::copy(&mut from, &mut io::sink()).map(drop)
}

/// Reads a request's body.
fn body(head: &str, from: &mut impl BufRead) -> io::Result<Vec<u8>> {
    let mut body = Vec::new();
    if field(head, "transfer-encoding").is_none() {
        let length = field(head, "content-length").map_or(0, |n| n.parse().unwrap());
        from.take(length).read_to_end(&mut body)?;
        return match body.len() as u64 == length {
            true => Ok(body),
            false => Err(io::ErrorKind::UnexpectedEof.into()),
        };
    }
    loop {
        let mut line = String::new();
        from.read_line(&mut line)?;
        let size = usize::from_str_radix(line.trim_end(), 16);
        let size = size.map_err(|_| io::ErrorKind::InvalidData)?;
        let begin = body.len();
        body.resize(begin + size, 0);
        from.read_exact(&mut body[begin..])?;
        line.clear();
        // After the last chunk comes a trailer, or the end.
        while from.read_line(&mut line)? > 2 && size == 0 {
            line.clear();
        }
        if size == 0 {
            return Ok(body);
        }
    }
}
