//! Load-balancing annotations: limits of concurrent requests, queueing, and outlier ejection.

use std::ops::RangeInclusive;

use heddle_model::{
    AppProtocol, Balancer, Balancing, Ejection, Failing, HashOn, Line, MAX_ROOM, MAX_SLOW_START_MS,
    RetryBudget, ServicePort,
};

use super::{Scope, did_you_mean};
use crate::check::{self, Flaw};
use crate::manifest::Object;
use crate::manifest::node::FieldPath;
use crate::registered::MAX_REQUESTS_ANNOTATION;

pub(super) const BALANCER: &str = "heddle.dev/load-balancer";
pub(super) const MAX_REQUESTS: &str = MAX_REQUESTS_ANNOTATION;
const HASH_ON: &str = "heddle.dev/hash-on";
const MAX_WAITING: &str = "heddle.dev/max-waiting";
const MAX_WAIT: &str = "heddle.dev/max-wait";
const EJECT_AFTER: &str = "heddle.dev/eject-after";
const EJECT_ON: &str = "heddle.dev/eject-on";
const EJECT_FOR: &str = "heddle.dev/eject-for";
const EJECT_AT_MOST: &str = "heddle.dev/eject-at-most";
const RETRY_BUDGET: &str = "heddle.dev/retry-budget";
const RETRY_MIN: &str = "heddle.dev/retry-min-per-second";
const SLOW_START: &str = "heddle.dev/slow-start";

/// The annotations of a Service.
pub(super) const OF_SERVICES: [&str; 12] = [
    BALANCER,
    MAX_REQUESTS,
    HASH_ON,
    MAX_WAITING,
    MAX_WAIT,
    EJECT_AFTER,
    EJECT_ON,
    EJECT_FOR,
    EJECT_AT_MOST,
    RETRY_BUDGET,
    RETRY_MIN,
    SLOW_START,
];

/// Largest number of consecutive failures before ejection.
const MAX_FAILURES: u32 = 1_000;

/// The annotations of an object.
struct Annotations<'a, 's> {
    object: &'a Object,
    scope: &'a mut Scope<'s>,
}

impl<'a> Annotations<'a, '_> {
    fn get(&self, key: &str) -> Option<&'a str> {
        let value = self.object.metadata.annotations.get(key)?;
        Some(value)
    }

    fn has(&self, key: &str) -> bool {
        self.get(key).is_some()
    }

    fn read<T>(&mut self, key: &str, read: impl FnOnce(&str) -> Result<T, Flaw>) -> Option<T> {
        let text = self.get(key)?;
        self.scope.check(&at(key), read(text))
    }

    fn error(&mut self, key: &str, reason: &str, remedy: &str) {
        self.scope.error(&at(key), reason, remedy);
    }
}

fn at(key: &str) -> FieldPath {
    FieldPath::of("metadata.annotations").field(key)
}

/// The limit of concurrent requests that an object sets for its endpoints.
pub(super) fn max_requests(object: &Object, scope: &mut Scope<'_>) -> Option<u32> {
    let mut annotations = Annotations { object, scope };
    annotations.read(MAX_REQUESTS, |text| number(text, 1..=MAX_ROOM, "requests"))
}

pub(super) fn balancer(object: &Object, scope: &mut Scope<'_>) -> Balancer {
    let read = |text: &str| match text {
        "least-request" => Ok(Balancer::LeastRequest),
        "round-robin" => Ok(Balancer::RoundRobin),
        "peak-ewma" => Ok(Balancer::PeakEwma),
        "ring-hash" => Ok(Balancer::RingHash),
        other => {
            let known = ["least-request", "round-robin", "peak-ewma", "ring-hash"];
            let otherwise = "use least-request, round-robin, peak-ewma or ring-hash";
            let remedy = did_you_mean(other, known, otherwise);
            Err(Flaw::new(
                format!("{other:?} is not a load balancer"),
                remedy,
            ))
        }
    };
    let mut annotations = Annotations { object, scope };
    annotations.read(BALANCER, read).unwrap_or_default()
}

/// The balancing settings of a Service with these ports, without the balancer itself.
pub(super) fn balancing(
    object: &Object,
    ports: &[ServicePort],
    scope: &mut Scope<'_>,
) -> Balancing {
    let mut annotations = Annotations { object, scope };
    let all = &mut annotations;
    // With an unknown balancer it cannot be said whether it uses the hash.
    let takes_no_hash = [
        None,
        Some("least-request"),
        Some("round-robin"),
        Some("peak-ewma"),
    ];
    if all.has(HASH_ON) && takes_no_hash.contains(&all.get(BALANCER)) {
        let remedy = "add heddle.dev/load-balancer: ring-hash, or remove it";
        all.error(HASH_ON, "only ring-hash looks at a hash", remedy);
    }
    let balancing = Balancing {
        hash_on: all.read(HASH_ON, hash_on).unwrap_or_default(),
        line: line(all),
        ejection: ejection(all),
        retry_budget: retry_budget(all),
        slow_start_ms: all
            .read(SLOW_START, |text| {
                duration(text, 0..=MAX_SLOW_START_MS, "0s to 1h")
            })
            .unwrap_or(0),
    };
    warn_of_nothing(all, ports);
    balancing
}

fn line(all: &mut Annotations<'_, '_>) -> Line {
    let default = Line::default();
    Line {
        max_waiting: all
            .read(MAX_WAITING, |text| number(text, 0..=Line::MOST, "requests"))
            .unwrap_or(default.max_waiting),
        max_wait_ms: all
            .read(MAX_WAIT, |text| {
                duration(text, 1..=Line::LONGEST_MS, "1ms to 1h")
            })
            .unwrap_or(default.max_wait_ms),
    }
}

fn ejection(all: &mut Annotations<'_, '_>) -> Option<Ejection> {
    let after = all.read(EJECT_AFTER, |text| {
        number(text, 1..=MAX_FAILURES, "failures")
    });
    let on = all.read(EJECT_ON, |text| match text {
        "5xx" => Ok(Failing::ServerError),
        "gateway-failure" => Ok(Failing::GatewayFailure),
        other => {
            let remedy = did_you_mean(
                other,
                ["5xx", "gateway-failure"],
                "use 5xx or gateway-failure",
            );
            Err(Flaw::new(
                format!("{other:?} is no kind of failure"),
                remedy,
            ))
        }
    });
    let base_ms = all.read(EJECT_FOR, |text| {
        duration(text, 1..=Ejection::LONGEST_MS, "1ms to 5m")
    });
    let max_percent = all.read(EJECT_AT_MOST, |text| percent(text, 1));
    if !all.has(EJECT_AFTER) {
        for key in [EJECT_ON, EJECT_FOR, EJECT_AT_MOST] {
            if all.has(key) {
                let reason = "without heddle.dev/eject-after no endpoint is ejected";
                all.error(
                    key,
                    reason,
                    "add heddle.dev/eject-after: \"5\", or remove it",
                );
            }
        }
    }
    Some(Ejection {
        after: after?,
        on: on.unwrap_or_default(),
        base_ms: base_ms.unwrap_or(Ejection::BASE_MS),
        max_percent: max_percent.unwrap_or(Ejection::MAX_PERCENT),
    })
}

fn retry_budget(all: &mut Annotations<'_, '_>) -> RetryBudget {
    let default = RetryBudget::default();
    RetryBudget {
        percent: all
            .read(RETRY_BUDGET, |text| percent(text, 0))
            .unwrap_or(default.percent),
        min_per_second: all
            .read(RETRY_MIN, |text| {
                number(text, 0..=RetryBudget::MOST_PER_SECOND, "retries")
            })
            .unwrap_or(default.min_per_second),
    }
}

/// Warns about valid annotations that have no effect.
fn warn_of_nothing(all: &mut Annotations<'_, '_>, ports: &[ServicePort]) {
    let is_bytes =
        |port: &ServicePort| matches!(port.protocol, AppProtocol::Tcp | AppProtocol::Tls);
    if all.has(MAX_REQUESTS) && !ports.is_empty() && ports.iter().all(is_bytes) {
        let remedy = "remove it, or declare the port as HTTP";
        let reason = "connections forwarded as bytes do not count as requests";
        all.scope.warn(&at(MAX_REQUESTS), reason, remedy);
    }
    if all.get(BALANCER) == Some("ring-hash") && all.has(SLOW_START) {
        let remedy = "remove it, or take another heddle.dev/load-balancer";
        let reason = "with ring-hash an endpoint has all of its share at once";
        all.scope.warn(&at(SLOW_START), reason, remedy);
    }
    let mut endpoints = ports.iter().flat_map(|port| &port.endpoints).peekable();
    if endpoints.peek().is_none() || endpoints.any(|one| one.max_requests.is_some()) {
        return;
    }
    for key in [MAX_WAITING, MAX_WAIT] {
        if all.has(key) && !all.has(MAX_REQUESTS) {
            let remedy = "add heddle.dev/max-requests, here or to the endpoints";
            let reason = "no endpoint has a limit of requests: no request is queued";
            all.scope.warn(&at(key), reason, remedy);
        }
    }
}

/// Parses `source`, or `header:` and a header's name.
fn hash_on(text: &str) -> Result<HashOn, Flaw> {
    if text == "source" {
        return Ok(HashOn::Source);
    }
    let Some(name) = text.strip_prefix("header:") else {
        let remedy = did_you_mean(
            text,
            ["source"],
            "use source, or header:NAME such as header:x-user",
        );
        return Err(Flaw::new(format!("{text:?} is not a hash key"), remedy));
    };
    check::match_name(name, "header")?;
    Ok(HashOn::Header(name.to_ascii_lowercase()))
}

fn number(text: &str, range: RangeInclusive<u32>, what: &str) -> Result<u32, Flaw> {
    let is_plain = text.bytes().all(|byte| byte.is_ascii_digit());
    let number = text.parse().ok().filter(|_| is_plain);
    number
        .filter(|number| range.contains(number))
        .ok_or_else(|| {
            Flaw::new(
                format!("{text:?} is no number of {what}"),
                format!("write {} to {}, in quotes", range.start(), range.end()),
            )
        })
}

fn percent(text: &str, least: u8) -> Result<u8, Flaw> {
    let digits = text.strip_suffix('%').unwrap_or(text);
    let is_plain = digits.bytes().all(|byte| byte.is_ascii_digit());
    let number = digits.parse().ok().filter(|_| is_plain);
    number
        .filter(|number| (least..=100).contains(number))
        .ok_or_else(|| {
            Flaw::new(
                format!("{text:?} is no share"),
                format!("write {least}% to 100%"),
            )
        })
}

fn duration(text: &str, range: RangeInclusive<u64>, shown: &str) -> Result<u64, Flaw> {
    let ms = check::duration_ms(text)?;
    match range.contains(&ms) {
        true => Ok(ms),
        false => Err(Flaw::new(
            format!("{text} is out of range"),
            format!("write {shown}"),
        )),
    }
}
