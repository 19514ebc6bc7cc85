//! Figures that pages quote: `0.31<!-- proxy.cpu_vs_envoy -->`, a figure with its reference behind it.
//!
//! The reference names a part and a figure of its report. The text before it has to be that figure as [`super::shown`]
//! writes it, or that it is not measured yet.

use std::collections::BTreeMap;

use super::parts::PARTS;
use super::record::Record;
use super::shown;

/// The records by part.
pub(super) type Records = BTreeMap<String, Record>;

const OPENS: &str = "<!-- ";
const CLOSES: &str = " -->";
/// Units that make a number a measurement. In README, outside of the rendered section, no number may have one.
const UNITS: [&str; 10] = [
    "µs",
    "ms",
    "KiB",
    "MiB",
    "GiB",
    "×",
    "requests/s",
    "requests a second",
    "requests per second",
    "of Envoy's",
];

/// A figure in a page, with the place where it begins, in bytes.
#[derive(Debug, PartialEq, Eq)]
struct Quote<'page> {
    reference: &'page str,
    quoted: &'page str,
    at: usize,
}

/// The errors in the figures that a page quotes.
pub(super) fn check(page: &str, text: &str, records: &Records) -> Vec<String> {
    let wrong = quotes(text).into_iter().filter_map(|quote| {
        let line = 1 + text[..quote.at].matches('\n').count();
        let Quote {
            reference, quoted, ..
        } = quote;
        let said = match expected(reference, records) {
            Err(why) => why,
            Ok(_) if quoted.is_empty() => "no figure stands before the reference".to_owned(),
            Ok(expected) if expected != quoted => {
                format!("quoted as {quoted}, and it is {expected}")
            }
            Ok(_) => return None,
        };
        Some(format!("{page}:{line}: {reference}: {said}"))
    });
    wrong.collect()
}

/// The page with every figure as it was measured last. Unknown references are left as they are.
pub(super) fn filled(text: &str, records: &Records) -> String {
    let mut filled = String::new();
    let mut from = 0;
    for Quote {
        reference,
        quoted,
        at,
    } in quotes(text)
    {
        if let Ok(expected) = expected(reference, records) {
            filled.push_str(&text[from..at]);
            filled.push_str(&expected);
            from = at + quoted.len();
        }
    }
    filled.push_str(&text[from..]);
    filled
}

/// The text that has to be before a reference.
fn expected(reference: &str, records: &Records) -> Result<String, String> {
    let (part, name) = reference.split_once('.').unwrap_or_default();
    if !PARTS.iter().any(|known| known.name == part) {
        return Err("there is no such part of the results".to_owned());
    }
    let Some(record) = records.get(part) else {
        return Ok(shown::NOT_YET.to_owned());
    };
    let figure = record.figure(name);
    let figure = figure.ok_or("the results have no such figure")?;
    Ok(shown::figure(&figure))
}

fn quotes(text: &str) -> Vec<Quote<'_>> {
    let prose = prose(text);
    let mut found = Vec::new();
    for (at, _) in prose.match_indices(OPENS) {
        let rest = &text[at + OPENS.len()..];
        let Some((reference, _)) = rest.split_once(CLOSES) else {
            continue;
        };
        if is_reference(reference) {
            let quoted = quoted(&text[..at]);
            found.push(Quote {
                reference,
                quoted,
                at: at - quoted.len(),
            });
        }
    }
    found
}

/// One word with a full stop in it; all other comments are ignored.
fn is_reference(comment: &str) -> bool {
    let is_word = |c: char| c.is_ascii_alphanumeric() || matches!(c, '-' | '_' | '.');
    comment.contains('.') && comment.chars().all(is_word)
}

/// The figure at the end of a text.
fn quoted(before: &str) -> &str {
    if before.ends_with(shown::NOT_YET) {
        return &before[before.len() - shown::NOT_YET.len()..];
    }
    let is_of_it = |c: char| c.is_ascii_digit() || matches!(c, '.' | ',' | '-');
    let start = before.trim_end_matches(is_of_it).len();
    &before[start..]
}

/// Measured figures in a text that have no reference: README has none outside of its rendered section.
pub(super) fn unbacked(text: &str, allowed: &[&str]) -> Vec<String> {
    let prose = prose(text);
    let lines = prose.lines().enumerate();
    let mut found = Vec::new();
    for (index, line) in lines {
        let mut line = line.to_owned();
        for setting in allowed {
            line = line.replace(setting, "");
        }
        for unit in UNITS {
            for (at, _) in line.match_indices(unit) {
                let before = line[..at].trim_end_matches([' ', '\u{a0}']);
                let after = line[at + unit.len()..].chars().next();
                let is_word = after.is_some_and(char::is_alphanumeric);
                if before.ends_with(|c: char| c.is_ascii_digit()) && !is_word {
                    let said = line.trim().chars().take(80).collect::<String>();
                    found.push(format!("line {}: {said}", index + 1));
                }
            }
        }
    }
    found
}

/// The text with spaces in place of all code, so that offsets stay the same.
fn prose(text: &str) -> String {
    let blank = |code: &str| " ".repeat(code.len());
    let mut prose = String::new();
    let mut in_block = false;
    for line in text.split_inclusive('\n') {
        let is_fence = line.trim_start().starts_with("```");
        if is_fence || in_block {
            let ends = line.ends_with('\n');
            prose.push_str(&blank(line.trim_end_matches('\n')));
            prose.push_str(if ends { "\n" } else { "" });
            in_block ^= is_fence;
            continue;
        }
        // Every second piece is between back-quotes.
        for (index, piece) in line.split('`').enumerate() {
            if index > 0 {
                prose.push(' ');
            }
            match index % 2 {
                1 if !piece.ends_with('\n') => prose.push_str(&blank(piece)),
                _ => prose.push_str(piece),
            }
        }
    }
    prose
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::results::record::tests::record;

    fn records() -> Records {
        let report =
            json!({"ratios": {"cpu_vs_envoy": 0.4444}, "values": {"offered_per_s": 12_514.4}});
        Records::from([("proxy".to_owned(), record("proxy", report))])
    }

    fn wrong(text: &str) -> Vec<String> {
        check("page.md", text, &records())
    }

    #[test]
    fn a_figure_as_it_was_measured_is_right() {
        for text in [
            "takes 0.44<!-- proxy.cpu_vs_envoy --> of it",
            "at 12,514<!-- proxy.offered_per_s -->/s",
            "| not measured yet<!-- mtls.cpu_mtls_vs_envoy --> |",
            "<!-- a comment. -->",
            "```\n0.99<!-- proxy.cpu_vs_envoy -->\n```\n",
            "written `0.31<!-- proxy.cpu_vs_envoy -->` in pages",
        ] {
            assert_eq!(wrong(text), [""; 0], "{text}");
        }
    }

    #[test]
    fn a_wrong_a_missing_and_an_unknown_one_are_told() {
        for (text, expected) in [
            (
                "\n0.45<!-- proxy.cpu_vs_envoy -->",
                "page.md:2: proxy.cpu_vs_envoy: quoted as 0.45, and it is 0.44",
            ),
            (
                "not measured yet<!-- proxy.cpu_vs_envoy -->",
                "page.md:1: proxy.cpu_vs_envoy: quoted as not measured yet, and it is 0.44",
            ),
            (
                "0.40<!-- mtls.cpu_mtls_vs_envoy -->",
                "page.md:1: mtls.cpu_mtls_vs_envoy: quoted as 0.40, and it is not measured yet",
            ),
            (
                "much<!-- proxy.cpu_vs_envoy -->",
                "page.md:1: proxy.cpu_vs_envoy: no figure stands before the reference",
            ),
            (
                "0.44<!-- proxy.speed -->",
                "page.md:1: proxy.speed: the results have no such figure",
            ),
            (
                "0.44<!-- prxy.cpu_vs_envoy -->",
                "page.md:1: prxy.cpu_vs_envoy: there is no such part of the results",
            ),
        ] {
            assert_eq!(wrong(text), [expected]);
        }
    }

    #[test]
    fn a_page_gets_the_figures_that_were_measured_last() {
        let page = "0.40<!-- proxy.cpu_vs_envoy -->, 3<!-- no.figure -->, 0.2<!-- mtls.a --> µs";
        let filled = filled(page, &records());
        let expected = "0.44<!-- proxy.cpu_vs_envoy -->, 3<!-- no.figure -->, not measured yet<!-- mtls.a --> µs";
        assert_eq!(filled, expected);
    }

    #[test]
    fn a_measured_figure_without_a_reference_is_found() {
        let text = "takes 35 µs\nand 1.2× of it\n`5 ms`\n```\n7 MiB\n```\na limit of 4 MiB\n3 msgs";
        let found = unbacked(text, &["a limit of 4 MiB"]);
        assert_eq!(found, ["line 1: takes 35 µs", "line 2: and 1.2× of it"]);
    }
}
