//! Checks without which the figures of a pair mean nothing: the second proxy enforces its policy, the traffic between
//! the two cannot be read, and all pairs use the same cipher suite.

use anyhow::{Context, bail};

use crate::ask;
use crate::systems::{ALLOWED, REFUSED, Running, System, Work};
use crate::wire::{Passed, Wire, chosen_suite, readable};

/// A header value by which the requests are recognized on the wire.
const MARK: &str = "f3b9c0d2-readable-on-the-wire";
/// A part of the upstream's bodies.
const BODY: &str = "0123456789abcdef0123456789abcdef";

/// Checks every pair and returns notes on that. `wire` has listened since before the pairs started, or says why it
/// cannot.
///
/// # Errors
/// When a pair fails a check.
pub(super) fn of_all(
    systems: &[System],
    running: &[Running],
    work: &Work,
    wire: &anyhow::Result<Wire>,
) -> anyhow::Result<Vec<String>> {
    let name = |index: usize| &systems[index].name;
    for (index, pair) in running.iter().enumerate() {
        policy(pair).with_context(|| name(index).clone())?;
    }
    let (method, path) = ALLOWED;
    let mut notes = vec![format!(
        "Every pair answers {method} {path} in its caller's name, refuses {} with 403, and answers \
         no request in plaintext between its proxies",
        REFUSED
            .map(|(method, path)| format!("{method} {path}"))
            .join(" and ")
    )];
    let wire = match wire {
        Ok(wire) => wire,
        Err(reason) => {
            notes.push(format!(
                "What passes between the proxies was not looked at: {reason:#}"
            ));
            return Ok(notes);
        }
    };
    let passed = wire.passed()?;
    let upstream = work
        .services
        .first()
        .and_then(|service| service.endpoints.first());
    let upstream = upstream.context("no upstream")?.port;
    let mut suites = Vec::new();
    for (index, pair) in running.iter().enumerate() {
        let suite = secrecy(pair, upstream, &passed).with_context(|| name(index).clone())?;
        suites.push(suite);
    }
    anyhow::ensure!(
        suites.windows(2).all(|two| two[0] == two[1]),
        "the pairs do not use the same cipher: {suites:04x?}"
    );
    notes.extend(suites.first().map(|suite| {
        format!(
            "What passes between the proxies was read along: TLS 1.3 with {}, in every pair, and \
             nothing of requests or answers in it",
            suite_name(*suite)
        )
    }));
    Ok(notes)
}

/// Checks the policy of the second proxy: which requests it allows and refuses, and that it answers none without TLS.
fn policy(pair: &Running) -> anyhow::Result<()> {
    for target in &pair.targets {
        let (method, path) = ALLOWED;
        let expected = [((method, path), 200), (REFUSED[0], 403), (REFUSED[1], 403)];
        for ((method, path), expected) in expected {
            let status = ask::status(target, method, path, MARK)
                .with_context(|| format!("{method} {path}"))?;
            anyhow::ensure!(
                status == expected,
                "{method} {path} is answered {status}, not {expected}"
            );
        }
        let (authority, _) = ask::target(target)?;
        let between = pair.between.context("no pair")?;
        let directly = format!("{authority}@{between}");
        if let Ok(status) = ask::status(&directly, method, path, "plain") {
            bail!("{between}, between the proxies, answers a request in plaintext with {status}");
        }
    }
    Ok(())
}

/// Checks that the mark can be read before and behind the pair but not within it; returns the cipher suite.
fn secrecy(pair: &Running, upstream: u16, passed: &Passed) -> anyhow::Result<u16> {
    let between = pair.between.context("no pair")?.port();
    let (_, near) = ask::target(pair.targets.first().context("no target")?)?;
    // Without these two checks the next one would prove nothing.
    anyhow::ensure!(
        readable(passed.to(near.port()), MARK) && readable(passed.to(upstream), MARK),
        "the requests were not seen where they are plain"
    );
    anyhow::ensure!(
        readable(passed.from(upstream), BODY),
        "the answers were not seen where they are plain"
    );
    anyhow::ensure!(
        !readable(passed.to(between), MARK) && !readable(passed.from(between), BODY),
        "what passes between the proxies can be read"
    );
    let suite = passed.from(between).find_map(chosen_suite);
    suite.context("no TLS 1.3 handshake was seen between the proxies")
}

/// The name of a cipher suite in RFC 8446 appendix B.4.
fn suite_name(suite: u16) -> String {
    match suite {
        0x1301 => "TLS_AES_128_GCM_SHA256".to_owned(),
        0x1302 => "TLS_AES_256_GCM_SHA384".to_owned(),
        0x1303 => "TLS_CHACHA20_POLY1305_SHA256".to_owned(),
        other => format!("cipher suite {other:#06x}"),
    }
}
