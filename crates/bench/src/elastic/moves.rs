//! The cost of moving a connection: CPU time for many idle connections that are handed from Worker to Worker, and
//! latency for connections in use.

use std::collections::BTreeMap;
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::Context;
use heddle_model::{AppProtocol, Balancer, Endpoint, Mesh, Service, ServiceName, ServicePort};
use heddle_proxy::{Elasticity, Entry, Proxy, Settings};
use heddle_telemetry::Registry;
use serde_json::json;

use super::stage::ElasticStage;
use crate::account;
use crate::findings::{Findings, failures, shown};
use crate::load::Outcome;
use crate::statistics::{self, Spread};

/// Idle connections, and how often each moves in a round.
const CONNECTIONS: usize = 200;
const TIMES: u64 = 50;
/// The timeout for moving all of them once.
const PATIENCE: Duration = Duration::from_secs(10);

/// Connections in use: requests per second over 64 of them, how often all of them are moved, and the
/// seconds of each window.
const RATE: &str = "4000";
const EVERY: Duration = Duration::from_millis(100);
const WINDOW_S: &str = "3";

pub(super) fn run(
    stage: &ElasticStage,
    rounds: u32,
    findings: &mut Findings,
) -> anyhow::Result<()> {
    let bed = Bed::new(stage.upstream_address())?;
    cost(&bed, rounds, findings)?;
    notice(stage, &bed, rounds, findings)
}

/// A proxy with two Workers in this process.
struct Bed {
    proxy: Proxy,
    address: SocketAddr,
}

impl Bed {
    fn new(upstream: SocketAddr) -> anyhow::Result<Bed> {
        let settings = Settings {
            workers: Elasticity {
                min: 2,
                max: 2,
                steal: false,
                ..Elasticity::default()
            },
            ..Settings::default()
        };
        let proxy = Proxy::start(settings, Arc::new(Registry::new()), None)?;
        let service = ServiceName::new("lab", "echo").context("a name")?;
        proxy.apply(&mesh(&service, upstream));
        let socket = TcpListener::bind("127.0.0.1:0")?;
        let address = socket.local_addr()?;
        let entry = Entry::Service {
            caller: None,
            service,
            port: 80,
        };
        proxy.listen(1, socket, entry);
        Ok(Bed { proxy, address })
    }

    fn connections(&self) -> i64 {
        let workers = self.proxy.status().workers;
        workers.iter().map(|worker| worker.connections_active).sum()
    }

    fn moved(&self) -> u64 {
        let workers = self.proxy.status().workers;
        workers.iter().map(|worker| worker.connections_moved).sum()
    }
}

/// Measures the CPU time of a move.
fn cost(bed: &Bed, rounds: u32, findings: &mut Findings) -> anyhow::Result<()> {
    let clients: Vec<TcpStream> = (0..CONNECTIONS)
        .map(|_| TcpStream::connect(bed.address))
        .collect::<Result<_, _>>()?;
    wait(|| bed.connections() == CONNECTIONS as i64)?;
    let mut cpu_us = Vec::new();
    for round in 0..rounds {
        eprintln!("moves: round {} of {rounds}", round + 1);
        let (ns, moved) = (workers_ns()?, bed.moved());
        for _ in 0..TIMES {
            let moved = bed.moved();
            bed.proxy.rotate();
            // A connection on its way between two Workers would miss the next `rotate`.
            let settled = || bed.connections() == CONNECTIONS as i64;
            wait(|| bed.moved() >= moved + CONNECTIONS as u64 && settled())?;
        }
        cpu_us.push((workers_ns()? - ns) as f64 / 1e3 / (bed.moved() - moved) as f64);
    }
    drop(clients);
    let cpu = statistics::median(&cpu_us);
    findings.say(format!(
        "\nMoves: {CONNECTIONS} idle HTTP connections, each handed on {TIMES} times"
    ));
    findings.say(format!(
        "  {} µs of CPU for each move, both workers and the Manager together",
        shown(cpu, 1)
    ));
    findings.value("move_cpu_us", Spread::of(&cpu_us));
    let row = json!({ "scenario": "moves", "cpu_us": cpu_us });
    findings.rows.push(row);
    Ok(())
}

/// Measures latencies while connections in use are moved ten times a second, and while they are not.
fn notice(
    stage: &ElasticStage,
    bed: &Bed,
    rounds: u32,
    findings: &mut Findings,
) -> anyhow::Result<()> {
    let target = format!("echo.lab@{}", bed.address);
    let (mut still, mut moving) = (Vec::new(), Vec::new());
    let mut moves = 0;
    for round in 0..rounds {
        eprintln!("moves in use: round {} of {rounds}", round + 1);
        let before = bed.moved();
        // The order alternates, so that drift of the machine affects both alike.
        if round % 2 == 0 {
            still.push(window(stage, &target)?);
            moving.push(window_that_moves(stage, bed, &target)?);
        } else {
            moving.push(window_that_moves(stage, bed, &target)?);
            still.push(window(stage, &target)?);
        }
        moves += bed.moved() - before;
    }
    let p999 = |all: &[Outcome]| {
        let all: Vec<f64> = all.iter().map(|o| o.p999_us / 1e3).collect();
        Spread::of(&all)
    };
    let (still_ms, moving_ms) = (p999(&still), p999(&moving));
    let median = |found: &Option<Spread>| found.as_ref().map(|spread| spread.median);
    let errors = || still.iter().chain(&moving).flat_map(|o| &o.errors);
    let failed: u64 = errors().map(|(_, count)| count).sum();
    findings.say(format!(
        "Moves in use: 64 connections at {RATE} requests/s, {moves} moves, {}",
        failures(errors())
    ));
    findings.say(format!(
        "  p99.9 {} ms while they move, {} ms while they do not",
        shown(median(&moving_ms), 2),
        shown(median(&still_ms), 2)
    ));
    findings.value("moving_p999_ms", moving_ms);
    findings.value("still_p999_ms", still_ms);
    findings.value("moving_failed", Some(failed as f64));
    Ok(())
}

fn window(stage: &ElasticStage, target: &str) -> anyhow::Result<Outcome> {
    let arguments = ["--connections", "64", "--rate", RATE, "--seconds", WINDOW_S];
    stage.measure_at(target, &arguments)
}

/// The same while all connections are moved, over and over.
fn window_that_moves(stage: &ElasticStage, bed: &Bed, target: &str) -> anyhow::Result<Outcome> {
    let over = AtomicBool::new(false);
    thread::scope(|scope| {
        scope.spawn(|| {
            while !over.load(Ordering::Relaxed) {
                bed.proxy.rotate();
                thread::park_timeout(EVERY);
            }
        });
        let outcome = window(stage, target);
        over.store(true, Ordering::Relaxed);
        outcome
    })
}

fn mesh(service: &ServiceName, upstream: SocketAddr) -> Mesh {
    let port = ServicePort {
        name: None,
        port: 80,
        protocol: AppProtocol::Http,
        endpoints: vec![Endpoint {
            address: upstream,
            weight: 1,
            max_requests: None,
            workload: None,
            remote_workload: None,
            account: None,
            node: None,
            has_envoy: false,
        }],
        routes: None,
        consumer_routes: BTreeMap::new(),
    };
    Mesh {
        generation: 1,
        services: vec![
            Service {
                name: service.clone(),
                headless: false,
                addresses: Vec::new(),
                balancer: Balancer::RoundRobin,
                balancing: heddle_model::Balancing::default(),
                ports: vec![port],
            }
            .into(),
        ],
        ..Mesh::default()
    }
}

fn wait(done: impl Fn() -> bool) -> anyhow::Result<()> {
    let end = Instant::now() + PATIENCE;
    while !done() {
        anyhow::ensure!(Instant::now() < end, "connections did not move in time");
        thread::park_timeout(Duration::from_millis(1));
    }
    Ok(())
}

/// CPU time of this process's Workers and its Manager.
fn workers_ns() -> anyhow::Result<u64> {
    let now = account::read(std::process::id())?;
    let threads = account::by_thread(std::process::id(), &account::Reading::default(), &now);
    let ours = |name: &str| name.starts_with("worker-") || name == "manager";
    let ours = threads.iter().filter(|(name, _)| ours(name));
    Ok(ours.map(|(_, ns)| ns).sum())
}
