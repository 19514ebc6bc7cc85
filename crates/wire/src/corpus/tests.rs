//! Each case of the corpus against the parsers, combined as in a proxy.

use std::collections::BTreeSet;

use super::{Outcome, Stage, requests};
use crate::http1::path::Canonical;
use crate::http1::{BodyTracker, Edits, Limits, REJECTS, Reject, RequestHead, authority, path};

fn refused(stage: Stage) -> impl Fn(Reject) -> Outcome {
    move |reject| Outcome::Refused {
        stage,
        status: reject.status,
        code: reject.code.into(),
    }
}

/// The outcome of a request on a port with path rules.
fn outcome(bytes: &[u8]) -> Outcome {
    decide(bytes).unwrap_or_else(|refusal| refusal)
}

fn decide(bytes: &[u8]) -> Result<Outcome, Outcome> {
    let mut head = RequestHead::new();
    let length = head
        .parse(bytes, &Limits::DEFAULT)
        .map_err(refused(Stage::Head))?
        .expect("a corpus case is decided by its own bytes");
    let raw_path = head.path.of(bytes);
    let mut text = Vec::new();
    let changed = path::canonicalise(raw_path, &mut text, true).map_err(refused(Stage::Path))?;
    let path = if changed == Canonical::Rewritten {
        &text
    } else {
        raw_path
    };
    let query = head
        .query
        .map(|query| [b"?", query.of(bytes)].concat())
        .unwrap_or_default();
    let target = [path, &query].concat();

    let raw_host = head
        .target_authority
        .or(head.host)
        .expect("a host")
        .of(bytes);
    let mut host = Vec::new();
    let canonical =
        authority::canonicalise(raw_host, 80, &mut host).map_err(refused(Stage::Head))?;
    host.truncate(canonical.host_len);

    let mut body = BodyTracker::from_framing(head.framing);
    body.advance(&bytes[length..])
        .map_err(refused(Stage::Body))?;
    assert!(body.is_done(), "a corpus case is decided by its own bytes");

    let text = |bytes| String::from_utf8(bytes).unwrap();
    Ok(Outcome::Forwarded {
        target: text(target),
        host: text(host),
    })
}

#[test]
fn every_case_is_refused_or_made_unambiguous() {
    let mut wrong = Vec::new();
    for case in requests() {
        let outcome = outcome(&case.bytes);
        if outcome != case.outcome {
            wrong.push(format!(
                "{}: {outcome:?}, not {:?}",
                case.name, case.outcome
            ));
        }
    }
    assert!(wrong.is_empty(), "\n{}", wrong.join("\n"));
}

#[test]
fn the_cases_are_many_and_distinct() {
    let cases = requests();
    assert!(cases.len() >= 80);
    assert_eq!(
        cases.len(),
        cases
            .iter()
            .map(|case| case.name)
            .collect::<BTreeSet<_>>()
            .len()
    );
    assert_eq!(
        cases.len(),
        cases
            .iter()
            .map(|case| &case.bytes)
            .collect::<BTreeSet<_>>()
            .len()
    );
}

/// A case that arrives byte by byte has the same outcome, and no prefix of it is accepted.
#[test]
fn every_case_has_the_same_outcome_however_it_arrives() {
    for case in requests().iter().filter(|case| case.bytes.len() < 2000) {
        let Outcome::Refused {
            stage: Stage::Head,
            status,
            code,
        } = &case.outcome
        else {
            continue;
        };
        let mut head = RequestHead::new();
        let refusal = (1..=case.bytes.len())
            .find_map(
                |end| match head.parse(&case.bytes[..end], &Limits::DEFAULT) {
                    Ok(None) => None,
                    Ok(Some(_)) => panic!("{}: accepted after {end} bytes", case.name),
                    Err(reject) => Some(reject),
                },
            )
            .unwrap_or_else(|| panic!("{}: never refused", case.name));
        // A prefix may get another reason than the whole request, when the parser stops before the byte that would
        // explain it. It is refused all the same.
        if refusal.code != code {
            assert!(
                [400, 431, 505].contains(&refusal.status),
                "{}: {refusal}",
                case.name
            );
        } else {
            assert_eq!(refusal.status, *status, "{}", case.name);
        }
    }
}

/// The corpus has a case for each reason, except those that only a response can have.
#[test]
fn the_corpus_knows_every_reason() {
    let seen: BTreeSet<String> = requests()
        .into_iter()
        .filter_map(|case| match case.outcome {
            Outcome::Refused { code, .. } => Some(code),
            Outcome::Forwarded { .. } => None,
        })
        .collect();
    let elsewhere = [
        "malformed_status_line",
        "status_out_of_range",
        "malformed_head",
        "path_not_absolute",
    ];
    let missing: Vec<_> = REJECTS
        .iter()
        .map(|reject| reject.code)
        .filter(|code| !seen.contains(*code) && !elsewhere.contains(code))
        .collect();
    assert!(missing.is_empty(), "no case for {missing:?}");
}

/// A forwarded form parses to itself: the next reader cannot interpret it differently.
#[test]
fn what_is_forwarded_is_a_fixed_point() {
    for case in requests() {
        let Outcome::Forwarded { target, host } = &case.outcome else {
            continue;
        };
        let mut head = RequestHead::new();
        let length = head.parse(&case.bytes, &Limits::DEFAULT).unwrap().unwrap();
        let mut edits = Edits::new();
        head.strip_hop_by_hop(&case.bytes, &mut edits);
        edits.replace(head.target, target.as_bytes());
        edits.replace(head.host.unwrap(), host.as_bytes());
        let mut sent = Vec::new();
        edits.write_to(&case.bytes[..length], &mut sent);
        let method = String::from_utf8_lossy(head.method_span.of(&case.bytes));
        assert!(
            sent.starts_with(format!("{method} {target} HTTP/1.1\r\n").as_bytes()),
            "{}",
            case.name
        );
        sent.extend_from_slice(&case.bytes[length..]);
        assert_eq!(outcome(&sent), case.outcome, "{}", case.name);
    }
}
