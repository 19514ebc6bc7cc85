//! The regular expressions of SMI, as far as they can be expressed without a regex engine.

/// The texts that an expression matches.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Pattern {
    /// Anything.
    Any,
    /// Exactly this text.
    Exact(String),
    /// Any text with this beginning.
    Start(String),
    /// This text, alone or followed by a slash and any text.
    Prefix(String),
}

/// Parses an expression that matches a whole text; `None` if it is not one of `LITERAL`, `LITERAL.*`, `LITERAL(/.*)?`
/// and `.*`, with or without `^` and `$` around it.
pub(super) fn translate(text: &str) -> Option<Pattern> {
    let text = text.strip_prefix('^').unwrap_or(text);
    let text = match text.strip_suffix('$') {
        Some(rest) if !ends_in_backslash(rest) => rest,
        _ => text,
    };
    if let Some(start) = text.strip_suffix("(/.*)?") {
        return literal(start)
            .filter(|start| !start.ends_with('/'))
            .map(Pattern::Prefix);
    }
    match text.strip_suffix(".*") {
        Some("") => Some(Pattern::Any),
        Some(start) if !ends_in_backslash(start) => literal(start).map(Pattern::Start),
        _ => literal(text).map(Pattern::Exact),
    }
}

/// Whether the next character is escaped: an odd number of backslashes precedes it.
fn ends_in_backslash(text: &str) -> bool {
    text.bytes().rev().take_while(|byte| *byte == b'\\').count() % 2 == 1
}

/// The text that an expression without operators matches; `\.` stands for a dot.
fn literal(text: &str) -> Option<String> {
    let mut plain = String::with_capacity(text.len());
    let mut rest = text.chars();
    while let Some(character) = rest.next() {
        match character {
            '\\' => plain.push(rest.next().filter(char::is_ascii_punctuation)?),
            '.' | '*' | '+' | '?' | '(' | ')' | '[' | ']' | '{' | '}' | '|' | '^' | '$' => {
                return None;
            }
            other => plain.push(other),
        }
    }
    Some(plain)
}
