//! PEM (RFC 7468), strictly: what is between two lines of dashes, in base64.
//!
//! Our own because a private key passes through here, and no copy of it may stay in memory.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use zeroize::Zeroizing;

/// Sections of one file.
const MAX_SECTIONS: usize = 16;
/// Characters on a line (RFC 7468 section 2).
const LINE: usize = 64;

/// One section of a PEM file.
pub struct Section {
    /// What it is, such as `CERTIFICATE`.
    pub label: String,
    /// What it holds, which may be a key.
    pub der: Zeroizing<Vec<u8>>,
}

/// The sections of a PEM file, at most 16; text outside of them is a comment.
///
/// # Errors
/// What is wrong, in words.
pub fn sections(bytes: &[u8]) -> Result<Vec<Section>, &'static str> {
    let text = std::str::from_utf8(bytes).map_err(|_| "it is no text")?;
    let mut sections = Vec::new();
    let mut lines = text.lines().map(str::trim);
    while let Some(line) = lines.next() {
        let Some(label) = boundary(line, "-----BEGIN ") else {
            continue;
        };
        if sections.len() == MAX_SECTIONS {
            return Err("it has too many sections");
        }
        // Not shorter than what follows, so that it never grows and leaves a copy of a key behind.
        let mut content = Zeroizing::new(String::with_capacity(text.len()));
        loop {
            let line = lines.next().ok_or("a section does not end")?;
            match boundary(line, "-----END ") {
                Some(end) if end == label => break,
                Some(_) => return Err("a section ends as another than it began"),
                None => content.push_str(line),
            }
        }
        let mut der = Zeroizing::new(vec![0; content.len() / 4 * 3 + 3]);
        let length = STANDARD
            .decode_slice(content.as_bytes(), &mut der)
            .map_err(|_| "a section is no base64")?;
        der.truncate(length);
        sections.push(Section {
            label: label.to_owned(),
            der,
        });
    }
    Ok(sections)
}

fn boundary<'a>(line: &'a str, start: &str) -> Option<&'a str> {
    line.strip_prefix(start)?.strip_suffix("-----")
}

/// One section as text.
pub fn encode(label: &str, der: &[u8]) -> Zeroizing<String> {
    let mut content = Zeroizing::new(vec![0; der.len().div_ceil(3) * 4]);
    let length = STANDARD.encode_slice(der, &mut content).unwrap_or(0);
    let content = content.get(..length).unwrap_or_default();
    let length = content.len() + content.len() / LINE + 2 * (label.len() + 20);
    let mut text = Zeroizing::new(String::with_capacity(length));
    text.push_str("-----BEGIN ");
    text.push_str(label);
    text.push_str("-----\n");
    for line in content.chunks(LINE) {
        text.extend(line.iter().map(|byte| char::from(*byte)));
        text.push('\n');
    }
    text.push_str("-----END ");
    text.push_str(label);
    text.push_str("-----\n");
    text
}
