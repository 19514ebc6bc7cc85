//! Handshakes, as many as a node sees when half a cluster restarts, and their effect on the traffic that was there
//! before.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::path::Path;
use std::time::Duration;

use anyhow::Context;
use serde_json::json;

use crate::authority::{Authority, identity};
use crate::child::{Child, Confinement, words};
use crate::findings::{Findings, failures, shown};
use crate::handshakes::Shaken;
use crate::load::Outcome;
use crate::report::Cell;
use crate::stage::Stage;
use crate::statistics::{self, Spread};
use crate::systems::{System, Traffic};

/// Handshakes per second, by callers with a certificate of the mesh.
const HANDSHAKES: u32 = 500;
/// The fraction of these that a storm must have to count.
const AT_LEAST: f64 = 0.95;
/// The rate of the traffic that was there before: moderate.
const RATE: f64 = 2_000.0;
const CELL: Cell = Cell {
    connections: 64,
    body_bytes: 128,
};
/// Seconds of load before each window, of the window, and of the storm, which is longer than both.
const WARM_UP_S: f64 = 0.5;
const WINDOW_S: f64 = 4.0;
const STORM_S: f64 = 6.0;

/// The results of one round: without the storm, and in it.
struct Round {
    calm: Outcome,
    stormy: Outcome,
    shaken: Shaken,
}

pub(super) fn run(heddle: &System, rounds: u32, findings: &mut Findings) -> anyhow::Result<()> {
    let systems = [heddle.clone()];
    let stage = Stage::set(&systems, 1, WARM_UP_S, Traffic::MutualTls)?;
    let authority = Authority::new()?;
    authority
        .leaf_of_node("near", "near")?
        .write(stage.dir.path(), "storm")?;
    let pair = heddle.start_pair(&stage.work(1, 1), &stage.place(0), &authority)?;
    let far = pair.between.context("no pair")?;
    let mut all = Vec::new();
    for round in 0..rounds {
        eprintln!("storm: round {} of {rounds}", round + 1);
        let calm = || stage.load(&pair, CELL, Some(RATE), WINDOW_S);
        let in_storm = || {
            let storm = begin(far, stage.dir.path())?;
            let stormy = stage.load(&pair, CELL, Some(RATE), WINDOW_S)?;
            let printed = storm.finish(Duration::from_secs_f64(STORM_S + 20.0))?;
            let shaken = serde_json::from_str(&printed).context("what the handshakes printed")?;
            anyhow::Ok((stormy, shaken))
        };
        // The order alternates, so that drift of the machine affects both alike.
        let (calm, (stormy, shaken)) = if round % 2 == 0 {
            (calm()?, in_storm()?)
        } else {
            let found = in_storm()?;
            (calm()?, found)
        };
        all.push(Round {
            calm,
            stormy,
            shaken,
        });
    }
    tell(&all, findings);
    Ok(())
}

/// Starts the callers. They share the core of the load generator, which the kernel schedules first.
fn begin(far: SocketAddr, dir: &Path) -> anyhow::Result<Child> {
    let name = identity("far")?.server_name().context("too long a name")?;
    let protocol = std::str::from_utf8(heddle_transport::Protocol::default().alpn())?;
    let mut command = vec![std::env::current_exe()?.into_os_string()];
    command.extend(words(["handshakes", "--to", &far.to_string()]));
    command.extend(words(["--name", &name, "--protocol", protocol]));
    for (flag, file) in [("--certificate", "storm.pem"), ("--key", "storm.key")] {
        command.push(flag.into());
        command.push(dir.join(file).into());
    }
    command.extend(words(["--rate", &HANDSHAKES.to_string()]));
    command.extend(words(["--seconds", &STORM_S.to_string()]));
    let place = Confinement {
        core: Some(1),
        groups: Vec::new(),
    };
    Child::start(
        "the handshakes",
        &place,
        &command,
        &dir.join("storm.log"),
        true,
    )
}

fn tell(all: &[Round], findings: &mut Findings) {
    let spread =
        |pick: &dyn Fn(&Round) -> f64| Spread::of(&all.iter().map(pick).collect::<Vec<_>>());
    let median = |pick: &dyn Fn(&Round) -> f64| spread(pick).map(|spread| spread.median);
    let per_s = |round: &Round| round.shaken.handshakes as f64 / round.shaken.seconds;
    let count = |errors: &BTreeMap<String, u64>| errors.values().sum::<u64>();
    let of_load = || {
        all.iter()
            .flat_map(|r| r.calm.errors.iter().chain(&r.stormy.errors))
    };
    let of_shaking = || all.iter().flat_map(|r| &r.shaken.errors);
    let p99 = |pick: fn(&Round) -> &Outcome| -> Vec<Option<f64>> {
        all.iter().map(|round| Some(pick(round).p99_us)).collect()
    };
    let ratio = statistics::ratio(&p99(|round| &round.stormy), &p99(|round| &round.calm));
    let achieved = median(&per_s);
    findings.say(format!(
        "\nStorm: {RATE:.0} requests/s over {} connections; {HANDSHAKES} full handshakes a second beside them",
        CELL.connections
    ));
    findings.say(format!(
        "  handshakes {}/s, {}, p99 {} ms",
        shown(achieved, 0),
        failures(of_shaking()),
        shown(median(&|round| round.shaken.p99_us / 1e3), 1)
    ));
    if achieved.is_none_or(|achieved| achieved < f64::from(HANDSHAKES) * AT_LEAST) {
        findings.invalid("there were fewer handshakes than there should have been");
    }
    findings.say(format!(
        "  requests: p99 {} µs in the storm, {} µs without it, {}",
        shown(median(&|round| round.stormy.p99_us), 0),
        shown(median(&|round| round.calm.p99_us), 0),
        failures(of_load())
    ));
    if let Some(ratio) = &ratio {
        findings.say(format!(
            "  p99 in the storm, divided by that without it: {:.2} in the middle round, {:.2} to {:.2}",
            ratio.median, ratio.min, ratio.max
        ));
    }
    let lost: u64 = all
        .iter()
        .map(|round| count(&round.calm.errors) + count(&round.stormy.errors))
        .sum();
    let refused: u64 = all.iter().map(|round| count(&round.shaken.errors)).sum();
    findings.ratio("storm_p99_vs_calm", ratio);
    findings.value("storm_failed", Some(lost as f64));
    findings.value("storm_handshakes_per_s", spread(&per_s));
    findings.value("storm_handshakes_failed", Some(refused as f64));
    findings.value("storm_handshake_cpu_us", spread(&cpu_us));
    for round in all {
        findings.rows.push(json!({
            "scenario": "storm", "calm": round.calm, "stormy": round.stormy,
            "handshakes": round.shaken,
        }));
    }
}

/// CPU time of both nodes for one handshake: how much more they used in the storm. The rate of requests is the same,
/// and their number may differ a little.
fn cpu_us(round: &Round) -> f64 {
    let per_s = |outcome: &Outcome| {
        let cpu = outcome.cpu.get("proxy").copied().unwrap_or_default();
        cpu.cpu_ns as f64 / 1e3 / outcome.seconds
    };
    let handshakes_per_s = round.shaken.handshakes as f64 / round.shaken.seconds;
    (per_s(&round.stormy) - per_s(&round.calm)) / handshakes_per_s
}
