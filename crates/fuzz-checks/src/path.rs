//! A canonical path is its own canonical form and means the same as the input; with a path rule it has no part that
//! servers interpret differently. The first byte says whether there is such a rule.

use heddle_wire::http1::path::{Canonical, canonicalise};

/// Decodes every percent-encoding.
fn meaning(path: &[u8]) -> Vec<u8> {
    let mut out = Vec::new();
    let mut rest = path;
    while let [byte, tail @ ..] = rest {
        rest = tail;
        if *byte == b'%' {
            let digits = std::str::from_utf8(&rest[..2]).expect("two digits");
            out.push(u8::from_str_radix(digits, 16).expect("two digits"));
            rest = &rest[2..];
        } else {
            out.push(*byte);
        }
    }
    out
}

/// Checks one input.
pub fn check(data: &[u8]) {
    let Some((choice, raw)) = data.split_first() else {
        return;
    };
    let strict = choice & 1 == 1;
    let mut out = Vec::new();
    let Ok(canonical) = canonicalise(raw, &mut out, strict) else {
        return;
    };
    let path = if canonical == Canonical::Rewritten {
        &out[..]
    } else {
        raw
    };
    assert!(path.starts_with(b"/") && path.iter().all(u8::is_ascii_graphic));
    assert_eq!(
        canonicalise(path, &mut Vec::new(), strict),
        Ok(Canonical::Verbatim)
    );
    let sent = meaning(path);
    if strict {
        assert!(!path.windows(2).any(|two| two == b"//"));
        assert!(!sent.contains(&b'\\'));
        assert_eq!(
            sent.iter().filter(|&&byte| byte == b'/').count(),
            path.iter().filter(|&&byte| byte == b'/').count(),
            "no slash is encoded"
        );
        assert!(
            !path
                .split(|&byte| byte == b'/')
                .any(|part| part == b"." || part == b"..")
        );
    } else if !raw.is_empty() {
        assert_eq!(sent, meaning(raw));
    }
}
