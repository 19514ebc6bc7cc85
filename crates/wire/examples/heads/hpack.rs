//! The smallest size of the same heads in HTTP/2 (RFC 7541), computed without encoding them.

use std::collections::VecDeque;

/// The entries of the static table that matter here, with their index.
const STATIC: &[(usize, &str, &str)] = &[
    (1, ":authority", ""),
    (3, ":method", "POST"),
    (4, ":path", "/"),
    (6, ":scheme", "http"),
    (8, ":status", "200"),
    (16, "accept-encoding", "gzip, deflate"),
    (17, "accept-language", ""),
    (19, "accept", ""),
    (24, "cache-control", ""),
    (28, "content-length", ""),
    (31, "content-type", ""),
    (33, "date", ""),
    (51, "referer", ""),
    (54, "server", ""),
    (58, "user-agent", ""),
];
const STATIC_LENGTH: usize = 61;
const TABLE_BYTES: usize = 4096;

/// An ideal compressor: it knows in advance which values will repeat, and keeps only those.
#[derive(Default)]
pub(crate) struct Hpack {
    dynamic: VecDeque<(String, String)>,
    bytes: usize,
    before: Vec<(String, String)>,
}

impl Hpack {
    /// Length of the header block for an HTTP/1.1 head, in bytes.
    pub(crate) fn count(&mut self, head: &[u8]) -> usize {
        let fields = fields(head);
        let count = fields.iter().map(|field| self.field(field)).sum();
        self.before = fields;
        count
    }

    fn field(&mut self, field: &(String, String)) -> usize {
        let (name, value) = field;
        let place = STATIC
            .iter()
            .find(|(_, n, v)| n == name && v == value)
            .map(|(at, ..)| *at)
            .or_else(|| {
                Some(STATIC_LENGTH + 1 + self.dynamic.iter().position(|had| had == field)?)
            });
        if let Some(place) = place {
            return integer(7, place);
        }
        let comes_again = self.before.contains(field);
        let bits = if comes_again { 6 } else { 4 };
        let named = STATIC
            .iter()
            .find(|(_, n, _)| n == name)
            .map(|(at, ..)| *at);
        let named = named.or_else(|| {
            Some(STATIC_LENGTH + 1 + self.dynamic.iter().position(|(n, _)| n == name)?)
        });
        let name_bytes = match named {
            Some(at) => integer(bits, at),
            None => 1 + string(name),
        };
        // A new name is worth an entry even if its value does not repeat.
        if comes_again || named.is_none() {
            self.bytes += name.len() + value.len() + 32;
            self.dynamic.push_front(field.clone());
            while self.bytes > TABLE_BYTES {
                let Some((name, value)) = self.dynamic.pop_back() else {
                    break;
                };
                self.bytes -= name.len() + value.len() + 32;
            }
        }
        name_bytes + string(value)
    }
}

fn fields(head: &[u8]) -> Vec<(String, String)> {
    let text = String::from_utf8_lossy(head);
    let mut lines = text.trim_end().split("\r\n");
    let first: Vec<_> = lines.next().unwrap_or_default().split(' ').collect();
    let mut fields = Vec::new();
    let mut put = |name: &str, value: &str| fields.push((name.to_owned(), value.to_owned()));
    if first[0].starts_with("HTTP/") {
        put(":status", first[1]);
    } else {
        put(":method", first[0]);
        put(":scheme", "http");
        put(":path", first[1]);
    }
    for line in lines {
        let (name, value) = line.split_once(": ").unwrap_or((line, ""));
        match name.to_ascii_lowercase().as_str() {
            "host" => put(":authority", value),
            name => put(name, value),
        }
    }
    fields
}

fn integer(bits: u32, value: usize) -> usize {
    let most = (1 << bits) - 1;
    if value < most {
        return 1;
    }
    let mut rest = value - most;
    let mut bytes = 2;
    while rest >= 128 {
        rest >>= 7;
        bytes += 1;
    }
    bytes
}

fn string(text: &str) -> usize {
    let bits: usize = text.bytes().map(huffman_bits).sum();
    let bytes = bits.div_ceil(8).min(text.len());
    integer(7, bytes) + bytes
}

/// Length of a character's code (RFC 7541 appendix B).
fn huffman_bits(byte: u8) -> usize {
    match byte {
        b'0'..=b'2' | b'a' | b'c' | b'e' | b'i' | b'o' | b's' | b't' => 5,
        b' ' | b'%' | b'-' | b'.' | b'/' | b'3'..=b'9' | b'=' | b'A' | b'_' => 6,
        b'b' | b'd' | b'f' | b'g' | b'h' | b'l' | b'm' | b'n' | b'p' | b'r' | b'u' => 6,
        b'&' | b'*' | b',' | b';' | b'X' | b'Z' => 8,
        b':' | b'B'..=b'Y' | b'j' | b'k' | b'q' | b'v'..=b'z' => 7,
        b'!' | b'"' | b'(' | b')' | b'?' => 10,
        b'\'' | b'+' | b'|' => 11,
        b'#' | b'>' => 12,
        _ => 13,
    }
}
