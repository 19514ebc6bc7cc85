//! Regular expressions of RE2 (<https://github.com/google/re2/wiki/Syntax>), each of which matches a whole text.

use heddle_model::PathMatch;

/// What parsers of header values leave out, any number of times.
const IGNORED: &str = r#"[\\" \t]*"#;
/// Parameters of a path's segment, whose `;` may be percent-encoded (RFC 3986 section 3.3).
const PARAMETERS: &str = "(?:(?:;|%3[Bb])[^/]*)?";

/// A text that is matched as it is.
pub(crate) fn quoted(text: &str) -> String {
    let mut quoted = String::with_capacity(text.len());
    for char in text.chars() {
        if char.is_ascii_punctuation() {
            quoted.push('\\');
        }
        quoted.push(char);
    }
    quoted
}

/// A path that some server may understand as another one, which a node's proxy refuses where a rule is about paths: dot
/// segments, also with parameters; segments of parameters only, except at the end; backslashes; encoded control characters;
/// malformed percent-encodings. An Envoy itself resolves the usual dot segments before.
pub(super) const AMBIGUOUS: &str = concat!(
    r"(?s).*/(?:",
    r"(?:\.|%2[Ee]){1,2}(?:(?:;|%3[Bb])[^/]*)?(?:/.*)?",
    r"|(?:;|%3[Bb])[^/]*/.*",
    r")",
    r"|.*\\.*",
    r"|.*%(?:[01][0-9A-Fa-f]|7[Ff]).*",
    r"|.*%(?:[^0-9A-Fa-f].*|[0-9A-Fa-f](?:[^0-9A-Fa-f].*)?)?",
);

/// A path that a server may treat as this one, which removes parameters from every segment.
pub(super) fn with_parameters(path: &PathMatch) -> String {
    let (path, rest) = match path {
        PathMatch::Exact(exact) => (exact, ""),
        PathMatch::Prefix(prefix) => (prefix, "(?:/.*)?"),
    };
    let segments = path.split('/');
    let segments = segments.map(|segment| format!("{}{PARAMETERS}", spelt(segment)));
    format!("(?s){}{rest}", segments.collect::<Vec<_>>().join("/"))
}

/// A path that begins with this one.
pub(super) fn beginning_with(start: &str) -> String {
    format!("(?s){}.*", spelt(start))
}

/// A part of a canonical path, in each spelling in which an Envoy leaves it: hexadecimal digits in either case, and
/// characters that should be encoded and are not.
fn spelt(part: &str) -> String {
    let mut spelt = String::with_capacity(part.len());
    let mut rest = part;
    while let Some((before, after)) = rest.split_once('%') {
        spelt.push_str(&quoted(before));
        let digits = after.get(..2).unwrap_or(after);
        let encoded = format!("(?i:{})", quoted(&format!("%{digits}")));
        let plain = u8::from_str_radix(digits, 16).ok().map(char::from);
        match plain.filter(|char| matches!(char, ' '..='~')) {
            Some(char) => {
                let plain = quoted(char.encode_utf8(&mut [0; 4]));
                spelt.push_str(&format!("(?:{encoded}|{plain})"));
            }
            None => spelt.push_str(&encoded),
        }
        rest = after.get(2..).unwrap_or_default();
    }
    spelt.push_str(&quoted(rest));
    spelt
}

/// A header's line of which one element or parameter is this one, but for quotes, white space and case.
pub(super) fn has_piece(piece: &str) -> String {
    let letters = piece.chars();
    let letters = letters.filter(|char| !matches!(char, '\\' | '"' | ' ' | '\t'));
    let letters = letters.map(|char| format!("{}{IGNORED}", quoted(char.encode_utf8(&mut [0; 4]))));
    let letters: String = letters.collect();
    format!("(?is)(?:.*[,;])?{IGNORED}{letters}(?:[,;].*)?")
}

/// Any text but this one: a beginning of it, one that differs in a character, or a longer one.
pub(super) fn anything_but(text: &str) -> String {
    let mut ways = Vec::new();
    let mut beginning = String::new();
    for char in text.chars() {
        let char = quoted(char.encode_utf8(&mut [0; 4]));
        ways.push(beginning.clone());
        ways.push(format!("{beginning}[^{char}].*"));
        beginning.push_str(&char);
    }
    ways.push(format!("{beginning}.+"));
    format!("(?s){}", ways.join("|"))
}
