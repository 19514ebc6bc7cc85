//! Requests that two readers could interpret differently, with the expected outcome of each.
//!
//! The data is in `corpus/requests.txt`, which describes its own format. This crate checks each case against its
//! parsers. The whole-mesh tests replay the same cases through a proxy, in front of a server that records what it
//! receives. The fuzz targets start from them. It is behind the feature `corpus`, because no program needs it.

/// A request and its expected outcome.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Case {
    /// A unique name that tells what is special about the request.
    pub name: &'static str,
    /// The bytes that the client sends.
    pub bytes: Vec<u8>,
    /// The expected outcome.
    pub outcome: Outcome,
}

/// The outcome of a request on a port with path rules.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Outcome {
    /// The proxy answers with this status and reason, and closes the connection.
    Refused {
        /// The part of the request for which it is refused.
        stage: Stage,
        /// Status of the answer.
        status: u16,
        /// Reason code.
        code: String,
    },
    /// The proxy forwards the request in this one form.
    Forwarded {
        /// The request target that the server sees.
        target: String,
        /// The Host that the server sees, without a port.
        host: String,
    },
}

/// The part of a request for which it is refused.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Stage {
    /// The head: the server receives nothing.
    Head,
    /// The path, on a port with path rules: the server receives nothing.
    Path,
    /// The body: the server may receive the head, but never a whole request.
    Body,
}

/// All cases, in file order.
///
/// # Panics
/// When the file does not follow its own format.
#[must_use]
pub fn requests() -> Vec<Case> {
    read(include_str!("../corpus/requests.txt"))
}

fn read(text: &'static str) -> Vec<Case> {
    text.split("\n== ").skip(1).map(case).collect()
}

fn case(text: &'static str) -> Case {
    let mut lines = text.lines();
    let name = lines.next().unwrap_or_default();
    let outcome = lines.next().and_then(outcome);
    let outcome = outcome.unwrap_or_else(|| panic!("corpus: {name}: no outcome"));
    let mut bytes = Vec::new();
    for line in lines.filter(|line| !line.starts_with('#')) {
        unescape(line.as_bytes(), &mut bytes)
            .unwrap_or_else(|| panic!("corpus: {name}: a bad escape in {line}"));
    }
    Case {
        name,
        bytes,
        outcome,
    }
}

fn outcome(line: &str) -> Option<Outcome> {
    let words: Vec<_> = line.split(' ').collect();
    let &[verb, first, second] = &words[..] else {
        return None;
    };
    let stage = match verb {
        "head" => Stage::Head,
        "path" => Stage::Path,
        "body" => Stage::Body,
        "forwarded" => {
            return Some(Outcome::Forwarded {
                target: first.into(),
                host: second.into(),
            });
        }
        _ => return None,
    };
    Some(Outcome::Refused {
        stage,
        status: first.parse().ok()?,
        code: second.into(),
    })
}

/// Appends the unescaped bytes of a line; `None` for an invalid escape.
fn unescape(line: &[u8], out: &mut Vec<u8>) -> Option<()> {
    let mut rest = line;
    while let [byte, tail @ ..] = rest {
        rest = match (byte, tail) {
            (b'\\', [b'r', tail @ ..]) => push(out, b'\r', tail),
            (b'\\', [b'n', tail @ ..]) => push(out, b'\n', tail),
            (b'\\', [b't', tail @ ..]) => push(out, b'\t', tail),
            (b'\\', [b'0', tail @ ..]) => push(out, 0, tail),
            (b'\\', [b'\\', tail @ ..]) => push(out, b'\\', tail),
            (b'\\', [b'x', high, low, tail @ ..]) => {
                let digits = [*high, *low];
                let digits = std::str::from_utf8(&digits).ok()?;
                push(out, u8::from_str_radix(digits, 16).ok()?, tail)
            }
            (b'\\', _) => return None,
            (b'{', tail) => {
                let end = tail.iter().position(|&byte| byte == b'}')?;
                let (inner, tail) = (&tail[..end], &tail[end + 1..]);
                let star = inner.iter().rposition(|&byte| byte == b'*')?;
                let times: usize = std::str::from_utf8(&inner[star + 1..]).ok()?.parse().ok()?;
                let mut once = Vec::new();
                unescape(&inner[..star], &mut once)?;
                out.extend(once.repeat(times));
                tail
            }
            (byte, tail) => push(out, *byte, tail),
        };
    }
    Some(())
}

fn push<'a>(out: &mut Vec<u8>, byte: u8, rest: &'a [u8]) -> &'a [u8] {
    out.push(byte);
    rest
}

#[cfg(test)]
mod tests;
