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

/// A path that a server may treat as this one, which removes parameters from every segment.
pub(super) fn with_parameters(path: &PathMatch) -> String {
    let (path, rest) = match path {
        PathMatch::Exact(exact) => (exact, ""),
        PathMatch::Prefix(prefix) => (prefix, "(?:/.*)?"),
    };
    let segments = path.split('/');
    let segments = segments.map(|segment| format!("{}{PARAMETERS}", quoted(segment)));
    format!("{}{rest}", segments.collect::<Vec<_>>().join("/"))
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
