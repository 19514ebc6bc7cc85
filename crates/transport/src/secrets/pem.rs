//! A strict PEM codec (RFC 7468): base64 between a BEGIN and an END line.
//!
//! It is our own because private keys pass through it, and no copy of one may stay in memory.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use zeroize::Zeroizing;

/// Limit on the sections of one file.
const MAX_SECTIONS: usize = 16;
/// Characters on each line of base64 that is written (RFC 7468 section 2).
const LINE: usize = 64;

/// One section of a PEM file.
pub struct Section {
    /// The type of the content, such as `CERTIFICATE`.
    pub label: String,
    /// The decoded content, which may be a private key.
    pub der: Zeroizing<Vec<u8>>,
}

/// Decodes a PEM file of at most 16 sections; text outside of them is ignored.
///
/// # Errors
/// What is wrong with the file, for an error message.
pub fn sections(bytes: &[u8]) -> Result<Vec<Section>, &'static str> {
    let text = std::str::from_utf8(bytes).map_err(|_| "it is not UTF-8 text")?;
    let mut sections = Vec::new();
    let mut lines = text.lines().map(str::trim);
    while let Some(line) = lines.next() {
        let Some(label) = boundary(line, "-----BEGIN ") else {
            continue;
        };
        if sections.len() == MAX_SECTIONS {
            return Err("it has too many sections");
        }
        // Large enough for the rest of the file: it must never grow, which would leave a copy of a key behind.
        let mut content = Zeroizing::new(String::with_capacity(text.len()));
        loop {
            let line = lines.next().ok_or("a section has no END line")?;
            match boundary(line, "-----END ") {
                Some(end) if end == label => break,
                Some(_) => return Err("an END line has another label than its BEGIN line"),
                None => content.push_str(line),
            }
        }
        let mut der = Zeroizing::new(vec![0; content.len() / 4 * 3 + 3]);
        let length = STANDARD
            .decode_slice(content.as_bytes(), &mut der)
            .map_err(|_| "a section is not valid base64")?;
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
