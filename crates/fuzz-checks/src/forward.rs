//! A forwarded request parses at the next proxy to the same request, and is forwarded unchanged from there: it has only
//! one interpretation.

use crate::naive::split_lines;
use heddle_wire::http1::path::{self, Canonical};
use heddle_wire::http1::{
    Edits, Field, FieldKind, Framing, Limits, Method, Reject, RequestHead, TargetForm, Version,
    authority,
};

/// Every part of a request that affects its treatment.
#[derive(Debug, PartialEq, Eq)]
struct Meaning {
    method: Method,
    path: Vec<u8>,
    query: Option<Vec<u8>>,
    host: Option<Vec<u8>>,
    framing: Framing,
    expect_continue: bool,
    fields: Vec<(Vec<u8>, Vec<u8>)>,
}

/// The proxy's interpretation, and the head that it forwards in HTTP/1.1.
fn forward(data: &[u8], strict: bool) -> Result<Option<(Meaning, Vec<u8>)>, Reject> {
    let mut head = RequestHead::new();
    let Some(length) = head.parse(data, &Limits::DEFAULT)? else {
        return Ok(None);
    };
    if head.form == TargetForm::Authority || head.version == Version::Http10 {
        return Ok(None);
    }
    let mut path = head.path.of(data).to_vec();
    if head.form != TargetForm::Asterisk {
        let mut out = Vec::new();
        if path::canonicalise(&path, &mut out, strict)? == Canonical::Rewritten {
            path = out;
        }
    }
    let query = head.query.map(|query| query.of(data).to_vec());
    let mut target = path.clone();
    if let Some(query) = &query {
        target.push(b'?');
        target.extend_from_slice(query);
    }
    let mut host = Vec::new();
    let raw_host = head.target_authority.or(head.host).expect("a host");
    authority::canonicalise(raw_host.of(data), 80, &mut host)?;

    let mut edits = Edits::new();
    head.strip_hop_by_hop(data, &mut edits);
    edits.replace(head.target, &target);
    edits.replace(head.host.expect("a host"), &host);
    for field in head
        .fields
        .iter()
        .filter(|field| field.kind.is_forwarding())
    {
        edits.cut(field.line);
    }
    let mut sent = Vec::new();
    edits.write_to(&data[..length], &mut sent);

    let lines = split_lines(&sent);
    let kept = |field: &&Field| {
        let line = field.line.of(data).strip_suffix(b"\r\n").expect("a line");
        // Host and framing are compared separately, and written anew.
        let is_part = matches!(
            field.kind,
            FieldKind::Host | FieldKind::ContentLength | FieldKind::TransferEncoding
        );
        !is_part && lines.contains(&line)
    };
    let fields = head.fields.iter().filter(kept);
    let fields = fields
        .map(|field| (field.name.of(data).to_vec(), field.value.of(data).to_vec()))
        .collect();
    let meaning = Meaning {
        method: head.method,
        path,
        query,
        host: Some(host),
        framing: head.framing,
        expect_continue: head.expect_continue,
        fields,
    };
    Ok(Some((meaning, sent)))
}

/// Checks one input.
pub fn check(data: &[u8]) {
    for strict in [false, true] {
        let Ok(Some((meaning, sent))) = forward(data, strict) else {
            continue;
        };
        // The canonical form may be longer than the input, since percent-encoding makes three bytes of one. Then the
        // next hop may refuse it as too long.
        let line = sent.iter().position(|&byte| byte == b'\n').unwrap_or(0);
        if sent.len() > Limits::DEFAULT.max_head_bytes - 1024
            || line > Limits::DEFAULT.max_target_bytes
        {
            continue;
        }
        let (again, sent_again) = forward(&sent, strict)
            .unwrap_or_else(|reject| panic!("{reject}: {}", sent.escape_ascii()))
            .unwrap_or_else(|| panic!("incomplete: {}", sent.escape_ascii()));
        assert_eq!(again, meaning);
        assert_eq!(sent_again, sent, "forwarding is idempotent");
    }
}
