//! Two thousand pairs of identities with a connection each.

use std::collections::BTreeMap;
use std::fs;
use std::net::{SocketAddr, TcpStream};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::Context;
use rustix::process::{Resource, getrlimit, setrlimit};
use serde_json::json;

use crate::account::{self, Memory};
use crate::ask;
use crate::authority::Authority;
use crate::child::Confinement;
use crate::findings::{Findings, shown};
use crate::nodes::{self, Nodes, Site};
use crate::statistics;
use crate::systems::{System, Work, render};
use crate::upstream::Serving;

/// Service accounts on each node.
const ACCOUNTS: u32 = 45;
const PAIRS: usize = (ACCOUNTS * ACCOUNTS) as usize;
/// The timeout until the nodes serve everything, and until every connection is established.
const PATIENCE: Duration = Duration::from_secs(90);
/// How long memory may settle before it is read.
const SETTLES_IN: Duration = Duration::from_secs(2);
const REQUEST: &[u8] = b"GET /api/v1/items/16 HTTP/1.1\r\nHost: lab\r\n\r\n";

/// Settings of both nodes: the default protocol between them, and limits that allow a link for every pair. The default
/// limit, 1,024 links for each Worker, is too low: a Worker that has the connections of more pairs refuses requests of
/// the others, since each link serves a flow or has requests that wait for it. Links from other nodes also have a share
/// of a node's connections, where an idle link is closed for the next one: that share is made larger, too.
const SETTINGS: &str = "proxy: {between_nodes: link, bounds: {links: 4096, connections: 8192}}\n";

/// File descriptors that the lab, and each node, needs at most: two for each connection, one for each listener, and a
/// reserve.
const DESCRIPTORS: u64 = 19_600;

/// The figures of one round.
struct Grown {
    near_mib: f64,
    far_mib: f64,
    /// The same for the private memory of each node.
    near_private_mib: f64,
    far_private_mib: f64,
    /// Resident memory of the larger node before.
    before_mib: f64,
    connections: usize,
}

pub(super) fn run(heddle: &System, rounds: u32, findings: &mut Findings) -> anyhow::Result<()> {
    raise_descriptors()?;
    findings.say(format!(
        "\nMemory: {ACCOUNTS} accounts call {ACCOUNTS}, {PAIRS} pairs of identities, a link each"
    ));
    let mut worst: Option<f64> = None;
    let mut worst_private: Option<f64> = None;
    let mut before: Option<f64> = None;
    for protocol in ["tcp", "http"] {
        let mut all = Vec::new();
        for round in 0..rounds {
            eprintln!("memory, {protocol}: round {} of {rounds}", round + 1);
            all.push(grow(heddle, protocol).with_context(|| format!("memory, {protocol}"))?);
        }
        let median =
            |pick: fn(&Grown) -> f64| statistics::median(&all.iter().map(pick).collect::<Vec<_>>());
        let (near, far) = (median(|g| g.near_mib), median(|g| g.far_mib));
        let private = [
            median(|g| g.near_private_mib),
            median(|g| g.far_private_mib),
        ];
        findings.say(format!(
            "  {protocol:5} near node {:>6} MiB more ({} private), far node {:>6} MiB more ({} private); \
             each held up to {} MiB before",
            shown(near, 1),
            shown(private[0], 1),
            shown(far, 1),
            shown(private[1], 1),
            shown(median(|g| g.before_mib), 1),
        ));
        before = [before, median(|g| g.before_mib)]
            .into_iter()
            .flatten()
            .reduce(f64::max);
        let [near_private, far_private] = private;
        worst_private = [worst_private, near_private, far_private]
            .into_iter()
            .flatten()
            .reduce(f64::max);
        worst = [worst, near, far].into_iter().flatten().reduce(f64::max);
        findings.rows.push(json!({
            "scenario": "memory",
            "protocol": protocol,
            "rounds": all.iter().map(|grown| json!({
                "near_mib": grown.near_mib, "far_mib": grown.far_mib,
                "near_private_mib": grown.near_private_mib, "far_private_mib": grown.far_private_mib,
                "before_mib": grown.before_mib, "connections": grown.connections,
            })).collect::<Vec<_>>(),
        }));
    }
    findings.value("identities_before_mib", before);
    findings.value("identities_mib", worst);
    findings.value("identities_private_mib", worst_private);
    let per_pair_kib = worst.map(|mib| mib * 1024.0 / PAIRS as f64);
    findings.value("identities_pair_kib", per_pair_kib);
    Ok(())
}

/// Starts one mesh, opens all its connections, and returns how its memory grew.
fn grow(heddle: &System, protocol: &str) -> anyhow::Result<Grown> {
    let dir = tempfile::Builder::new().prefix("heddle-lab-").tempdir()?;
    let upstream = Serving::start(ACCOUNTS, &Confinement::default(), dir.path())?;
    let work = Work::new(ACCOUNTS, 1, upstream.port);
    let template = include_str!("../../peers/heddle-identities.yaml.j2");
    let manifest = render(
        template,
        minijinja::context! { services => work.services, protocol },
    )?;
    nodes::write_manifest(dir.path(), &manifest)?;
    let settings = dir.path().join("settings.yaml");
    fs::write(&settings, SETTINGS)?;
    let mut mesh = Nodes::start(&Site {
        heddle: &heddle.program,
        dir: dir.path(),
        place: &Confinement::default(),
        control_settings: None,
        settings: Some(&settings),
        apart: None,
        etcd: None,
        root: &Authority::new()?,
    })?;
    let (program, socket) = (mesh.near.heddle.clone(), mesh.near.socket.clone());
    let pairs = mesh.near.child.wait_until(PATIENCE, || {
        let pairs = pairs_of(&nodes::status(&program, &socket)?)?;
        (pairs.len() == PAIRS).then_some(pairs)
    })?;
    let end = Instant::now() + PATIENCE;
    // One connection before the others: what is allocated once for all of them does not count.
    let last = pairs.values().next_back().context("no pair")?;
    drop(connect(*last, end)?);
    thread::park_timeout(SETTLES_IN);
    let memory = |mesh: &Nodes| -> anyhow::Result<[Memory; 2]> {
        Ok([&mesh.near, &mesh.far].map(|node| account::memory(node.child.pid())))
            .and_then(|[near, far]| Ok([near?, far?]))
    };
    let before = memory(&mesh)?;
    let open = pairs.values().map(|address| connect(*address, end));
    let open: Vec<TcpStream> = open.collect::<anyhow::Result<_>>()?;
    thread::park_timeout(SETTLES_IN);
    let connections = established(&fs::read_to_string("/proc/net/tcp")?, mesh.far.mesh.port());
    anyhow::ensure!(
        connections >= PAIRS,
        "only {connections} connections are open between the nodes for {PAIRS} pairs"
    );
    let after = memory(&mesh)?;
    drop(open);
    let more_mib =
        |node: usize, pick: fn(&Memory) -> u64| mib(pick(&after[node])) - mib(pick(&before[node]));
    Ok(Grown {
        near_mib: more_mib(0, |memory| memory.rss_kib),
        far_mib: more_mib(1, |memory| memory.rss_kib),
        near_private_mib: more_mib(0, |memory| memory.private_kib),
        far_private_mib: more_mib(1, |memory| memory.private_kib),
        before_mib: mib(before[0].rss_kib.max(before[1].rss_kib)),
        connections,
    })
}

fn mib(kib: u64) -> f64 {
    kib as f64 / 1024.0
}

/// The listeners of the callers `nearN` for the Services `echoN` in a node's status.
fn pairs_of(status: &[u8]) -> Option<BTreeMap<(String, String), SocketAddr>> {
    let status: serde_json::Value = serde_json::from_slice(status).ok()?;
    let listeners = status.get("listeners")?.as_array()?;
    let pair = |listener: &serde_json::Value| {
        let text = |field: &str| Some(listener.get(field)?.as_str()?.to_owned());
        let (caller, service) = (text("caller")?, text("service")?);
        let ours = caller.starts_with("lab/near") && service.starts_with("lab/echo");
        ours.then_some(((caller, service), text("address")?.parse().ok()?))
    };
    Some(listeners.iter().filter_map(pair).collect())
}

/// A connection on which one request got 200. Tries again until `end`, since certificates may still be on their way.
fn connect(address: SocketAddr, end: Instant) -> anyhow::Result<TcpStream> {
    loop {
        let tried = TcpStream::connect(address)
            .map_err(anyhow::Error::from)
            .and_then(|stream| Ok((ask::answer(&stream, REQUEST)?, stream)));
        match tried {
            Ok((200, stream)) => return Ok(stream),
            Ok((status, _)) if Instant::now() > end => {
                anyhow::bail!("{address} answers {status}")
            }
            Err(error) if Instant::now() > end => return Err(error.context(address)),
            _ => thread::park_timeout(Duration::from_millis(50)),
        }
    }
}

/// The number of established connections to a port in `/proc/net/tcp`, counted at the calling end.
fn established(table: &str, port: u16) -> usize {
    let called = |line: &&str| {
        let mut fields = line.split_ascii_whitespace().skip(2);
        let remote = fields.next().and_then(|remote| remote.rsplit_once(':'));
        let to_port = remote.is_some_and(|(_, hex)| u16::from_str_radix(hex, 16) == Ok(port));
        to_port && fields.next() == Some("01")
    };
    table.lines().skip(1).filter(called).count()
}

/// Raises the limit of open files: the lab holds a client of each pair, and its children inherit the limit.
fn raise_descriptors() -> anyhow::Result<()> {
    let mut limit = getrlimit(Resource::Nofile);
    let enough = |limit: Option<u64>| limit.is_none_or(|limit| limit >= DESCRIPTORS);
    if !enough(limit.current) {
        limit.current = limit.maximum;
        setrlimit(Resource::Nofile, limit).context("the limit of open files")?;
    }
    anyhow::ensure!(
        enough(limit.current),
        "{DESCRIPTORS} open files are needed, the limit is {:?} (raise it: ulimit -Hn)",
        limit.current
    );
    Ok(())
}

#[cfg(test)]
mod tests;
