//! Requests to Services that a lazy Envoy does not know.

use std::fmt::Write as _;
use std::fs;
use std::ops::Range;
use std::time::{Duration, Instant};

use serde_json::json;

use super::Sizes;
use super::envoy::{Envoy, within};
use super::town::{
    FRONT, GATEWAY_NODE, GATEWAYS, Gateways, LAZY, PORT, SERVERS, Town, pause, wait_until,
};
use crate::account;
use crate::ask;
use crate::findings::{Findings, shown};
use crate::statistics::median;

/// Requests to each Service, and the time from one to the next: 100 in a second.
const REQUESTS: usize = 10;
const EVERY: Duration = Duration::from_millis(10);
/// From this request on, counted from 0, all have to go without a gateway.
const DIRECT_FROM: usize = 4;
/// Those from here on are what the first one is compared with.
const LATER: usize = 5;

/// The requests to one Service.
struct Asked {
    first_ms: f64,
    /// Those that go direct for certain.
    later_ms: Vec<f64>,
    failed: usize,
    /// Requests that a gateway has carried, and of these those that should have gone direct.
    by_gateway: f64,
    late: f64,
}

/// By gateways that are Envoys, then by a node's proxy.
pub(super) fn run(town: &Town, sizes: &Sizes, findings: &mut Findings) -> anyhow::Result<()> {
    let count = sizes.firsts;
    let gateways = GATEWAYS.map(|pod| town.envoy(pod));
    let gateways: Vec<Envoy> = gateways.into_iter().collect::<anyhow::Result<_>>()?;
    let mut known = Vec::new();
    for gateway in &gateways {
        known.push(gateway.sent()?.clusters);
    }
    let file = town.lab.folder().join("manifests/first.yaml");
    fs::write(&file, services(count)?)?;
    for (gateway, known) in gateways.iter().zip(known) {
        let all = known + count as f64;
        let has_all = || gateway.sent().is_ok_and(|sent| sent.clusters >= all);
        wait_until("a gateway has the new Services", has_all)?;
    }
    // Clusters are there a moment before the routes to them.
    pause(Duration::from_secs(1));
    let used = || -> anyhow::Result<f64> {
        let each = gateways.iter().map(Envoy::cpu_s);
        Ok(each.collect::<anyhow::Result<Vec<_>>>()?.iter().sum())
    };
    measure(town, 0..count, ("", "Envoys"), used, findings)?;
    town.use_gateways(Gateways::Node)?;
    fs::write(&file, services(2 * count)?)?;
    let node = town.process(&format!("heddle node {GATEWAY_NODE}"))?;
    // The node says nothing about what it knows. It is sent a change within a few milliseconds.
    pause(Duration::from_secs(5));
    // A node's holder hardly runs; its proxy is its child.
    let used = || {
        let all = account::tree(node).into_iter().map(account::cpu_ns_alone);
        let each = all.collect::<anyhow::Result<Vec<_>>>()?;
        Ok(each.iter().sum::<u64>() as f64 / 1e9)
    };
    let by_node = ("_by_node", "a node");
    measure(town, count..2 * count, by_node, used, findings)?;
    let mib = account::memory(node)?.private_kib as f64 / 1024.0;
    findings.value("node_gateway_mib", Some(mib));
    findings.say(format!("  the node has {mib:.1} MiB"));
    Ok(())
}

/// Asks Services for the first time. `used` is the processor time of the gateways so far, in seconds.
fn measure(
    town: &Town,
    numbers: Range<usize>,
    (suffix, by): (&str, &str),
    used: impl Fn() -> anyhow::Result<f64>,
    findings: &mut Findings,
) -> anyhow::Result<()> {
    let count = numbers.len();
    let envoy = town.envoy(&format!("{LAZY}/{FRONT}"))?;
    let network = town.pod(&format!("{LAZY}/{FRONT}"))?.network();
    let before = used()?;
    let asked = numbers.map(|number| {
        let to = format!("first-{number}@{}:{PORT}", address(number));
        within(&network, || ask_one(&to, &envoy))
    });
    let asked: Vec<Asked> = asked.collect::<anyhow::Result<_>>()?;
    let used_s = used()? - before;
    let all = |pick: fn(&Asked) -> f64| asked.iter().map(pick).collect::<Vec<f64>>();
    let sum = |pick: fn(&Asked) -> f64| all(pick).iter().sum::<f64>();
    let first = all(|one| one.first_ms);
    let later: Vec<f64> = asked.iter().flat_map(|one| one.later_ms.clone()).collect();
    let added = all(|one| one.first_ms - median(&one.later_ms).unwrap_or_default());
    findings.say(format!(
        "\nFirst requests by {by}: {count} Services that a lazy Envoy does not know, {REQUESTS} requests to each, 100 in a second\n  \
         first {} ms (p99 {}), later {} ms (p99 {}), {} ms more (p99 {}), {} failed, {} of {} went through a gateway",
        shown(median(&first), 2),
        shown(quantile(&first, 0.99), 2),
        shown(median(&later), 2),
        shown(quantile(&later, 0.99), 2),
        shown(median(&added), 2),
        shown(quantile(&added, 0.99), 2),
        sum(|one| one.failed as f64),
        sum(|one| one.by_gateway),
        count * REQUESTS,
    ));
    let by_gateway = sum(|one| one.by_gateway);
    let gateway_ms = (by_gateway > 0.0).then(|| used_s * 1e3 / by_gateway);
    for (name, value) in [
        ("lazy_first_request_ms", median(&first)),
        ("lazy_first_request_p99_ms", quantile(&first, 0.99)),
        ("lazy_later_request_ms", median(&later)),
        ("lazy_later_request_p99_ms", quantile(&later, 0.99)),
        ("lazy_first_request_added_ms", median(&added)),
        ("lazy_first_request_added_p99_ms", quantile(&added, 0.99)),
        ("lazy_failed", Some(sum(|one| one.failed as f64))),
        ("lazy_requests_by_gateway", Some(by_gateway / count as f64)),
        ("lazy_requests_late", Some(sum(|one| one.late))),
        ("gateways_cpu_ms_per_request", gateway_ms),
    ] {
        findings.value(format!("{name}{suffix}"), value);
    }
    findings.rows.push(json!({
        "scenario": format!("first requests by {by}"),
        "first_ms": first,
        "later_ms": later,
        "by_gateway": all(|one| one.by_gateway),
    }));
    Ok(())
}

/// Asks a Service [`REQUESTS`] times, each time over a new connection.
fn ask_one(to: &str, envoy: &Envoy) -> anyhow::Result<Asked> {
    let began = envoy.by_gateway()?;
    let (mut took, mut failed, mut at_fifth) = (Vec::new(), 0, began);
    for number in 0..REQUESTS {
        let since = Instant::now();
        let status = ask::status(to, "GET", "/128", "1");
        took.push(since.elapsed().as_secs_f64() * 1e3);
        if !matches!(status, Ok(200)) {
            eprintln!("  {to}, request {}: {status:?}", number + 1);
            failed += 1;
        }
        if number + 1 == DIRECT_FROM {
            at_fifth = envoy.by_gateway()?;
        }
        pause(EVERY.saturating_sub(since.elapsed()));
    }
    let ended = envoy.by_gateway()?;
    Ok(Asked {
        first_ms: took.first().copied().unwrap_or_default(),
        later_ms: took.split_off(LATER),
        failed,
        by_gateway: ended - began,
        late: ended - at_fifth,
    })
}

fn quantile(all: &[f64], part: f64) -> Option<f64> {
    let mut all = all.to_vec();
    all.sort_by(f64::total_cmp);
    let at = (all.len() as f64 * part) as usize;
    all.get(at.min(all.len().saturating_sub(1))).copied()
}

fn address(number: usize) -> String {
    format!("10.98.{}.{}", number / 200, 1 + number % 200)
}

/// Services of the bookstore's own pods.
fn services(count: usize) -> anyhow::Result<String> {
    let mut text = String::new();
    for number in 0..count {
        let server = SERVERS[number % SERVERS.len()];
        writeln!(
            text,
            "---\n{{apiVersion: v1, kind: Service, metadata: {{name: first-{number}, namespace: {LAZY}}}, spec: {{clusterIP: {}, \
             ipFamilies: [IPv4], selector: {{app: {server}}}, ports: [{{port: {PORT}, appProtocol: http}}]}}}}",
            address(number)
        )?;
    }
    Ok(text)
}
