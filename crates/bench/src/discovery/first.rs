//! The first request to a Service that the node does not know; alone, and beside a workload that asks for names that do
//! not exist.

use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::Context;
use serde_json::json;

use super::Sizes;
use super::stage::{CALLER, Client, Mode, SCANNER, Stage, service};
use crate::findings::{Findings, shown};
use crate::statistics::{self, Spread};

/// Connections of the workload that scans.
const SCANNING: usize = 64;

/// How long the scan goes on before anything is measured.
const SCANS_BEFORE: Duration = Duration::from_secs(4);

/// The figures of one round, in milliseconds.
struct Took {
    first_p50: f64,
    first_p99: f64,
    next_p50: f64,
    next_p99: f64,
}

pub(super) fn run(heddle: &Path, sizes: &Sizes, findings: &mut Findings) -> anyhow::Result<()> {
    findings.say(format!(
        "\nFirst requests: {} services of {} that the node does not know, and the next request to each",
        sizes.firsts, sizes.large
    ));
    let (mut alone, mut beside, mut asked) = (Vec::new(), Vec::new(), Vec::new());
    for round in 0..sizes.rounds {
        eprintln!("first requests: round {} of {}", round + 1, sizes.rounds);
        let stage = Stage::new(
            heddle,
            sizes.large,
            Mode::OnDemand {
                forget_after_s: 600,
            },
        )?;
        alone.push(firsts(&stage, 0..sizes.firsts)?);
        let (took, per_second) = beside_a_scan(&stage, sizes.firsts..2 * sizes.firsts)?;
        beside.push(took);
        asked.push(per_second);
    }
    for (name, all) in [("alone", &alone), ("beside a scan", &beside)] {
        let median = |pick: fn(&Took) -> f64| {
            let all: Vec<f64> = all.iter().map(pick).collect();
            shown(statistics::median(&all), 3)
        };
        findings.say(format!(
            "  {name:14} first p50 {:>8} p99 {:>8} ms, next p50 {:>8} p99 {:>8} ms",
            median(|took| took.first_p50),
            median(|took| took.first_p99),
            median(|took| took.next_p50),
            median(|took| took.next_p99),
        ));
    }
    let spread = |all: &[Took], pick: fn(&Took) -> f64| {
        Spread::of(&all.iter().map(pick).collect::<Vec<_>>())
    };
    findings.value("first_request_ms", spread(&alone, |took| took.first_p50));
    findings.value(
        "first_request_p99_ms",
        spread(&alone, |took| took.first_p99),
    );
    findings.value("next_request_ms", spread(&alone, |took| took.next_p50));
    findings.value(
        "first_request_added_ms",
        spread(&alone, |took| took.first_p99 - took.next_p99),
    );
    let ratios = alone.iter().zip(&beside);
    let ratios: Vec<f64> = ratios
        .map(|(alone, beside)| beside.first_p99 / alone.first_p99)
        .collect();
    findings.ratio(
        "first_request_p99_beside_scan_vs_alone",
        Spread::of(&ratios),
    );
    findings.value("scan_asked_per_s", Spread::of(&asked));
    findings.rows.push(json!({
        "scenario": "first requests",
        "services": sizes.large,
        "asked_per_s": asked,
        "alone": alone.iter().map(row).collect::<Vec<_>>(),
        "beside": beside.iter().map(row).collect::<Vec<_>>(),
    }));
    Ok(())
}

fn row(took: &Took) -> serde_json::Value {
    json!({
        "first_p50_ms": took.first_p50, "first_p99_ms": took.first_p99,
        "next_p50_ms": took.next_p50, "next_p99_ms": took.next_p99,
    })
}

/// First and next requests to these Services, at a rate that a caller may ask at.
fn firsts(stage: &Stage, services: std::ops::Range<usize>) -> anyhow::Result<Took> {
    let client = stage.connect(CALLER)?;
    let (mut first, mut next) = (Vec::new(), Vec::new());
    for number in services {
        let service = service(number);
        let began = Instant::now();
        first.push(timed(&client, &service)?);
        next.push(timed(&client, &service)?);
        let pause = Duration::from_millis(15).saturating_sub(began.elapsed());
        thread::park_timeout(pause);
    }
    Ok(Took {
        first_p50: quantile(&mut first, 0.5)?,
        first_p99: quantile(&mut first, 0.99)?,
        next_p50: quantile(&mut next, 0.5)?,
        next_p99: quantile(&mut next, 0.99)?,
    })
}

fn timed(client: &Client, service: &str) -> anyhow::Result<f64> {
    let began = Instant::now();
    let status = client.get(service)?;
    anyhow::ensure!(status == 200, "{service} answers {status}");
    Ok(began.elapsed().as_secs_f64() * 1e3)
}

fn quantile(all: &mut [f64], part: f64) -> anyhow::Result<f64> {
    all.sort_by(f64::total_cmp);
    let at = (all.len() as f64 * part) as usize;
    all.get(at.min(all.len().saturating_sub(1)))
        .copied()
        .context("no request")
}

/// The same while another workload asks for names that do not exist. Returns also how many names the control plane was
/// told in a second.
fn beside_a_scan(stage: &Stage, services: std::ops::Range<usize>) -> anyhow::Result<(Took, f64)> {
    let clients = (0..SCANNING).map(|_| stage.connect(SCANNER));
    let clients: Vec<Client> = clients.collect::<anyhow::Result<_>>()?;
    let is_over = AtomicBool::new(false);
    let own = services.len() as f64;
    let asked = |stage: &Stage| -> anyhow::Result<f64> {
        let asked = stage.status()?["discovery"]["asked"].as_f64();
        asked.context("it is not on demand")
    };
    thread::scope(|scope| {
        let is_over = &is_over;
        let scanners: Vec<_> = clients
            .iter()
            .enumerate()
            .map(|(number, client)| scope.spawn(move || scan(client, number, is_over)))
            .collect();
        // By then, what the scanner may ask at once is used up.
        thread::park_timeout(SCANS_BEFORE);
        let (began, before) = (Instant::now(), asked(stage)?);
        let took = firsts(stage, services);
        let seconds = began.elapsed().as_secs_f64();
        let after = asked(stage);
        is_over.store(true, Ordering::Relaxed);
        for scanner in scanners {
            scanner.join().ok().context("a scanner panicked")??;
        }
        Ok((took?, (after? - before - own) / seconds))
    })
}

/// Asks for one name after the other that does not exist.
fn scan(client: &Client, number: usize, is_over: &AtomicBool) -> anyhow::Result<()> {
    for name in 0.. {
        if is_over.load(Ordering::Relaxed) {
            break;
        }
        let status = client.get(&format!("none-{number}-{name}"))?;
        anyhow::ensure!(matches!(status, 502 | 503), "a scanner gets {status}");
    }
    Ok(())
}
