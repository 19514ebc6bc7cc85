//! An independent reader of HTTP/1.1, as simple as possible.

use std::io::Read;
use std::net::TcpStream;

use super::case::{Ending, Seen};

pub(super) struct Reader<'a> {
    stream: &'a TcpStream,
    unread: Vec<u8>,
}

/// Why nothing more can be read.
enum End {
    Closed,
    Reset,
}

impl<'a> Reader<'a> {
    pub(super) fn new(stream: &'a TcpStream) -> Reader<'a> {
        Reader {
            stream,
            unread: Vec::new(),
        }
    }

    fn fill(&mut self) -> Result<(), End> {
        let mut bytes = [0; 16_384];
        match self.stream.read(&mut bytes) {
            Ok(0) => Err(End::Closed),
            Ok(n) => {
                self.unread.extend_from_slice(&bytes[..n]);
                Ok(())
            }
            Err(_) => Err(End::Reset),
        }
    }

    fn line(&mut self) -> Result<String, End> {
        loop {
            if let Some(at) = self.unread.windows(2).position(|two| two == b"\r\n") {
                let rest = self.unread.split_off(at + 2);
                let mut line = std::mem::replace(&mut self.unread, rest);
                line.truncate(at);
                return Ok(String::from_utf8(line).expect("text"));
            }
            self.fill()?;
        }
    }

    /// The lines before the next empty one.
    fn lines(&mut self) -> Result<Vec<String>, End> {
        let mut lines = Vec::new();
        loop {
            match self.line()? {
                line if line.is_empty() => return Ok(lines),
                line => lines.push(line),
            }
        }
    }

    /// Reads a message's head: its first line, and its other lines. `None` if no complete head comes.
    pub(super) fn head(&mut self) -> Option<(String, Vec<String>)> {
        let mut lines = self.lines().ok()?;
        if lines.is_empty() {
            return None;
        }
        let first = lines.remove(0);
        Some((first, lines))
    }

    /// Reads the body after a head, piece by piece, and calls `came` for each piece.
    pub(super) fn body(&mut self, head: &[String], mut came: impl FnMut()) -> Seen {
        let mut seen = Seen {
            interim: Vec::new(),
            number: 0,
            what: String::new(),
            data: Vec::new(),
            trailers: Vec::new(),
            outcome: Ending::Cut,
        };
        let field = |name: &str| {
            head.iter().find_map(|line| {
                let (key, value) = line.split_once(':')?;
                key.eq_ignore_ascii_case(name)
                    .then(|| value.trim().to_owned())
            })
        };
        let ended = if field("transfer-encoding").is_some() {
            self.chunks(&mut seen, &mut came)
        } else if let Some(length) = field("content-length") {
            self.data(length.parse().expect("a number"), &mut seen, &mut came)
        } else {
            self.rest(&mut seen)
        };
        if ended.is_ok() {
            seen.outcome = Ending::Whole;
        }
        seen
    }

    fn chunks(&mut self, seen: &mut Seen, came: &mut impl FnMut()) -> Result<(), End> {
        loop {
            let size = self.line()?;
            let size = usize::from_str_radix(&size, 16).expect("a size");
            if size == 0 {
                break;
            }
            self.data(size, seen, came)?;
            assert_eq!(self.line()?, "", "what ends a chunk");
        }
        for line in self.lines()? {
            let (name, value) = line.split_once(':').expect("a trailer");
            let name = name.to_ascii_lowercase();
            seen.trailers.push((name, value.trim().to_owned()));
        }
        Ok(())
    }

    fn data(
        &mut self,
        mut left: usize,
        seen: &mut Seen,
        came: &mut impl FnMut(),
    ) -> Result<(), End> {
        while left > 0 {
            if self.unread.is_empty() {
                self.fill()?;
            }
            let take = left.min(self.unread.len());
            seen.data.extend(self.unread.drain(..take));
            left -= take;
            came();
        }
        Ok(())
    }

    fn rest(&mut self, seen: &mut Seen) -> Result<(), End> {
        loop {
            seen.data.append(&mut self.unread);
            match self.fill() {
                Ok(()) => {}
                Err(End::Closed) => return Ok(()),
                Err(End::Reset) => return Err(End::Reset),
            }
        }
    }
}
