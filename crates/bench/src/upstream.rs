//! The server behind every proxy: one thread, one epoll, answers made in advance.
//!
//! It has to cost less than any proxy under test, or the experiment would measure the upstream. The
//! last segment of the path says how long the body is: `/api/v1/items/4096?x=y` answers 4,096 bytes.

use std::io::{self, BufRead, BufReader, ErrorKind, Read, Write};
use std::net::{Ipv4Addr, SocketAddr, SocketAddrV4, TcpListener, TcpStream};
use std::path::Path;
use std::time::Duration;

use anyhow::Context;
use clap::Args;
use rustix::event::epoll;
use slab::Slab;
use time::OffsetDateTime;

use super::child::{Child, Confinement, words};
use super::http;
use super::listen::listen;
use super::work::work;

/// The largest body that a request may ask for, in bytes.
const MAX_BODY: u64 = 16 << 20;
/// Limit for a request, head and body together, in bytes.
const MAX_REQUEST: usize = 128 << 10;
/// The beginning of an answer, up to its date.
const BEFORE_DATE: &str = "HTTP/1.1 200 OK\r\nDate: ";

/// Options of `heddle-lab upstream`.
#[derive(Args)]
pub struct Upstream {
    /// How many addresses of 127.1.0.0/16 to serve on, all with the same port.
    #[arg(long, default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..=4096))]
    addresses: u32,
    /// Serve here instead.
    #[arg(long, value_name = "ADDRESS:PORT", conflicts_with = "addresses")]
    listen: Option<SocketAddr>,
    /// CPU time that each answer costs, in microseconds: the work of an application.
    #[arg(long, default_value_t = 0)]
    work_us: u64,
}

/// The `index`th address that an upstream serves on.
pub(super) fn address(index: u32) -> Ipv4Addr {
    Ipv4Addr::from_bits(Ipv4Addr::new(127, 1, 0, 1).to_bits() + index)
}

/// A running upstream, and the port it serves on.
pub(super) struct Serving {
    pub(super) child: Child,
    pub(super) port: u16,
}

impl Serving {
    /// Starts one with a number of addresses.
    ///
    /// # Errors
    /// When it does not start; its log is quoted.
    pub(super) fn start(
        addresses: u32,
        place: &Confinement,
        dir: &Path,
    ) -> anyhow::Result<Serving> {
        let part = ["upstream", "--addresses", &addresses.to_string()];
        Serving::of(&part, place, dir)
    }

    /// Starts a subcommand of this program that serves and prints its port.
    ///
    /// # Errors
    /// When it does not start; its log is quoted.
    pub(super) fn of(part: &[&str], place: &Confinement, dir: &Path) -> anyhow::Result<Serving> {
        let mut command = vec![std::env::current_exe()?.into_os_string()];
        command.extend(words(part));
        let log = dir.join("upstream.log");
        let mut child = Child::start("upstream", place, &command, &log, true)?;
        let mut line = String::new();
        BufReader::new(child.output()?).read_line(&mut line)?;
        let port = line.trim().parse().with_context(|| {
            let log = std::fs::read_to_string(&log).unwrap_or_default();
            format!("the upstream did not start: {log}")
        })?;
        Ok(Serving { child, port })
    }
}

enum Peer {
    Listener(TcpListener),
    Connection(AcceptedConnection),
}

struct AcceptedConnection {
    stream: TcpStream,
    /// A request that has not arrived completely.
    partial: Vec<u8>,
    /// The answer being written: its index, and how many of its bytes are written.
    writing: Option<(usize, usize)>,
}

/// Serves until the process is stopped. Prints the port on a line of its own once it listens.
pub fn run(options: &Upstream) -> anyhow::Result<()> {
    let mut server = match options.listen {
        Some(address) => Server::empty().and_then(|mut server| {
            server.listen(address)?;
            Ok(server)
        })?,
        None => Server::bind(options.addresses)?,
    };
    server.answers.work = Duration::from_micros(options.work_us);
    println!("{}", server.port);
    server.serve()
}

/// An upstream in a thread that lasts as long as the test process; returns its port.
#[cfg(test)]
pub(super) fn in_background() -> u16 {
    let mut server = Server::bind(1).expect("bind");
    let port = server.port;
    std::thread::spawn(move || server.serve());
    port
}

struct Server {
    epoll: rustix::fd::OwnedFd,
    peers: Slab<Peer>,
    answers: ResponseCache,
    scratch: Vec<u8>,
    port: u16,
}

impl Server {
    fn empty() -> anyhow::Result<Server> {
        Ok(Server {
            epoll: epoll::create(epoll::CreateFlags::CLOEXEC)?,
            peers: Slab::new(),
            answers: ResponseCache::default(),
            scratch: vec![0; 64 << 10],
            port: 0,
        })
    }

    fn bind(addresses: u32) -> anyhow::Result<Server> {
        let mut server = Server::empty()?;
        for index in 0..addresses {
            server.listen(SocketAddrV4::new(address(index), server.port).into())?;
        }
        Ok(server)
    }

    fn listen(&mut self, wanted: SocketAddr) -> anyhow::Result<()> {
        let listener = listen(wanted)?;
        self.port = listener.local_addr()?.port();
        let entry = self.peers.vacant_entry();
        let data = epoll::EventData::new_u64(entry.key() as u64);
        epoll::add(&self.epoll, &listener, data, epoll::EventFlags::IN)?;
        entry.insert(Peer::Listener(listener));
        Ok(())
    }

    fn serve(&mut self) -> anyhow::Result<()> {
        let mut events = Vec::with_capacity(512);
        loop {
            events.clear();
            match epoll::wait(
                &self.epoll,
                rustix::buffer::spare_capacity(&mut events),
                None,
            ) {
                Ok(_) | Err(rustix::io::Errno::INTR) => {}
                Err(error) => return Err(error).context("epoll_wait"),
            }
            for event in &events {
                let key = usize::try_from(event.data.u64())?;
                match self.peers.get_mut(key) {
                    Some(Peer::Listener(_)) => self.accept(key)?,
                    Some(Peer::Connection(connection)) => {
                        let alive = connection.step(
                            &self.epoll,
                            key,
                            event.flags,
                            &mut self.scratch,
                            &mut self.answers,
                        );
                        if !alive {
                            self.peers.remove(key);
                        }
                    }
                    None => {}
                }
            }
        }
    }

    fn accept(&mut self, listener: usize) -> anyhow::Result<()> {
        loop {
            let Some(Peer::Listener(socket)) = self.peers.get(listener) else {
                return Ok(());
            };
            let stream = match socket.accept() {
                Ok((stream, _)) => stream,
                Err(error) if error.kind() == ErrorKind::WouldBlock => return Ok(()),
                Err(error) => return Err(error).context("accept"),
            };
            stream.set_nonblocking(true)?;
            stream.set_nodelay(true)?;
            let entry = self.peers.vacant_entry();
            let data = epoll::EventData::new_u64(entry.key() as u64);
            epoll::add(&self.epoll, &stream, data, epoll::EventFlags::IN)?;
            entry.insert(Peer::Connection(AcceptedConnection {
                stream,
                partial: Vec::new(),
                writing: None,
            }));
        }
    }
}

impl AcceptedConnection {
    /// Handles an event; false when the connection has ended.
    fn step(
        &mut self,
        epoll: &rustix::fd::OwnedFd,
        key: usize,
        flags: epoll::EventFlags,
        scratch: &mut [u8],
        answers: &mut ResponseCache,
    ) -> bool {
        let waited = self.writing.is_some();
        let outcome = if waited && flags.contains(epoll::EventFlags::OUT) {
            self.write(answers)
        } else if waited && !flags.intersects(epoll::EventFlags::ERR | epoll::EventFlags::HUP) {
            Ok(true)
        } else {
            self.read(scratch, answers)
        };
        let waits = self.writing.is_some();
        if waits != waited && matches!(outcome, Ok(true)) {
            let interest = if waits {
                epoll::EventFlags::OUT
            } else {
                epoll::EventFlags::IN
            };
            let data = epoll::EventData::new_u64(key as u64);
            return epoll::modify(epoll, &self.stream, data, interest).is_ok();
        }
        matches!(outcome, Ok(true))
    }

    fn read(&mut self, scratch: &mut [u8], answers: &mut ResponseCache) -> io::Result<bool> {
        let count = match self.stream.read(scratch) {
            Ok(0) => return Ok(false),
            Ok(count) => count,
            Err(error) if error.kind() == ErrorKind::WouldBlock => return Ok(true),
            Err(error) => return Err(error),
        };
        if self.partial.is_empty() {
            let Some((len, target)) = http::request(&scratch[..count]) else {
                self.partial.extend_from_slice(&scratch[..count]);
                return Ok(true);
            };
            // A proxy has one request in flight on a connection: more bytes are an error of the proxy.
            if len < count {
                return Ok(false);
            }
            if len > count {
                self.partial.extend_from_slice(&scratch[..count]);
                return Ok(len <= MAX_REQUEST);
            }
            self.writing = Some((answers.find(target), 0));
        } else {
            self.partial.extend_from_slice(&scratch[..count]);
            match http::request(&self.partial) {
                None => return Ok(self.partial.len() < MAX_REQUEST),
                Some((len, _)) if len < self.partial.len() => return Ok(false),
                Some((len, _)) if len > self.partial.len() => return Ok(len <= MAX_REQUEST),
                Some((_, target)) => self.writing = Some((answers.find(target), 0)),
            }
            self.partial.clear();
        }
        self.write(answers)
    }

    fn write(&mut self, answers: &ResponseCache) -> io::Result<bool> {
        while let Some((which, done)) = self.writing {
            let answer = answers.bytes(which);
            match self.stream.write(&answer[done..]) {
                Ok(count) if done + count == answer.len() => self.writing = None,
                Ok(count) => self.writing = Some((which, done + count)),
                Err(error) if error.kind() == ErrorKind::WouldBlock => break,
                Err(error) => return Err(error),
            }
        }
        Ok(true)
    }
}

/// Whole responses by length of body, made the first time that a length is asked for.
#[derive(Default)]
struct ResponseCache {
    made: Vec<(u64, Vec<u8>)>,
    /// The date in all of them, as a Unix time in seconds.
    dated: i64,
    /// CPU time that each answer costs in addition.
    work: Duration,
}

impl ResponseCache {
    fn find(&mut self, target: &[u8]) -> usize {
        work(self.work);
        self.date();
        let length = body_length(target).min(MAX_BODY);
        if let Some(found) = self.made.iter().position(|(len, _)| *len == length) {
            return found;
        }
        // A handful of lengths in practice; a stray client must not grow this without end.
        if self.made.len() == 64 {
            return 0;
        }
        let mut bytes = answer(length);
        put_date(&mut bytes, self.dated);
        self.made.push((length, bytes));
        self.made.len() - 1
    }

    /// Renews their dates once a second, as every server does.
    fn date(&mut self) {
        let now = OffsetDateTime::now_utc().unix_timestamp();
        if now != self.dated {
            self.dated = now;
            for (_, bytes) in &mut self.made {
                put_date(bytes, now);
            }
        }
    }

    fn bytes(&self, which: usize) -> &[u8] {
        &self.made[which].1
    }
}

/// The body length that a target asks for: the number in its last path segment, else 0.
fn body_length(target: &[u8]) -> u64 {
    let path = memchr::memchr(b'?', target).map_or(target, |query| &target[..query]);
    let last = memchr::memrchr(b'/', path).map_or(path, |slash| &path[slash + 1..]);
    http::number(last).unwrap_or(0)
}

fn answer(length: u64) -> Vec<u8> {
    let head = format!(
        "{BEFORE_DATE}Thu, 01 Jan 1970 00:00:00 GMT\r\nServer: lab\r\n\
         Content-Type: application/octet-stream\r\nCache-Control: no-store\r\n\
         X-Content-Type-Options: nosniff\r\nContent-Length: {length}\r\n\r\n"
    );
    let mut bytes = head.into_bytes();
    let body = usize::try_from(length).unwrap_or(0);
    bytes.extend(b"0123456789abcdef".iter().cycle().take(body));
    bytes
}

/// Replaces the date in an answer (RFC 9110 section 5.6.7).
fn put_date(answer: &mut [u8], unix_s: i64) {
    let at = OffsetDateTime::from_unix_timestamp(unix_s).unwrap_or(OffsetDateTime::UNIX_EPOCH);
    let weekday = at.weekday().to_string();
    let month = at.month().to_string();
    let date = format!(
        "{}, {:02} {} {:04} {:02}:{:02}:{:02} GMT",
        &weekday[..3],
        at.day(),
        &month[..3],
        at.year(),
        at.hour(),
        at.minute(),
        at.second()
    );
    let at = BEFORE_DATE.len();
    answer[at..at + date.len()].copy_from_slice(date.as_bytes());
}

#[cfg(test)]
mod tests;
