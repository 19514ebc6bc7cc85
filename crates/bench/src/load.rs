//! The load generator: one thread, one epoll, keep-alive connections, every answer checked.
//!
//! Two ways to offer load. *Closed loop*: each connection sends its next request when its answer has
//! come, which finds the highest throughput. *Fixed rate*: requests are due at times fixed in advance
//! (a Poisson process with a fixed seed), whichever connection is free takes the next, and latency
//! counts from the time a request was **due**. So a proxy that stalls is charged for all the requests
//! that the stall delayed, not only for those in flight (no coordinated omission).
//!
//! The load generator itself reads the CPU time of the other processes, exactly at the edges of its window, so that CPU
//! time and completed requests belong to the same interval.

use std::collections::BTreeMap;
use std::io::Write;
use std::net::SocketAddr;
use std::num::NonZeroU64;
use std::time::{Duration, Instant};

use anyhow::Context;
use clap::Args;
use rustix::event::epoll;
use serde::{Deserialize, Serialize};

use super::account;
use connection::{Connection, Failure, Progress};
use phase::LoadPhase;

pub(super) use history::Slice;
pub(super) use request::{Head, Request, Shape};
pub(super) use schedule::Schedule;
pub(super) use tally::{Tally, WindowEdge, edge};

mod connection;
mod history;
mod phase;
mod request;
mod schedule;
mod tally;

/// The fraction of the offered rate that a run must carry. Arrivals are random: short windows of few requests miss the
/// rate by a few per cent.
const CARRIED_SHARE: f64 = 0.93;

/// Options of `heddle-lab load`.
#[derive(Args, Clone)]
pub struct Load {
    /// `AUTHORITY@ADDRESS:PORT` to send to; connections take these in turn.
    #[arg(long = "target", required = true)]
    targets: Vec<Target>,
    /// Keep-alive connections.
    #[arg(long, default_value_t = 64, value_parser = clap::value_parser!(u32).range(1..=10_000))]
    connections: u32,
    /// Bytes of body to ask for; an answer with another length is a failure.
    #[arg(long, default_value_t = 128)]
    body_bytes: u64,
    /// The kind of head that requests have.
    #[arg(long, value_enum, default_value = "plain")]
    head: Head,
    /// Bytes of body to send, with a head that goes with a body.
    #[arg(long, default_value_t = 0, value_parser = clap::value_parser!(u64).range(..=64 << 10))]
    send_bytes: u64,
    /// Change path, trace and id with every request, where the head has them.
    #[arg(long)]
    changing: bool,
    /// The end of the path, instead of the number of bytes to ask for.
    #[arg(long)]
    path_end: Option<String>,
    #[command(flatten)]
    pace: Pace,
    /// `SECONDS@RATE` or `SECONDS@max`, in turn, over and over: each phase prints `phase UNIX_MS` as it begins.
    #[arg(long = "phase", conflicts_with_all = ["rate", "requests"])]
    phases: Vec<LoadPhase>,
    /// Only every N-th connection carries requests; the others stay open and idle.
    #[arg(long, default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..))]
    active_every: u32,
    /// Also print latency over time, in slices of so many milliseconds.
    #[arg(long, value_name = "MS", value_parser = clap::value_parser!(u64).range(1..=60_000))]
    history: Option<u64>,
}

/// The rate and the length of the load, and the processes whose CPU time is read.
#[derive(Args, Clone)]
pub(super) struct Pace {
    /// Requests per second offered; without it each connection sends as fast as it is answered.
    #[arg(long)]
    pub(super) rate: Option<f64>,
    /// Seconds of load before the window.
    #[arg(long, default_value_t = 0.3)]
    pub(super) warm_up: f64,
    /// Seconds of the window.
    #[arg(long, default_value_t = 2.0)]
    pub(super) seconds: f64,
    /// End after this many requests instead of by time; no warm-up.
    #[arg(long)]
    pub(super) requests: Option<u64>,
    /// `NAME=PID`: read CPU time and memory of this process tree; trees with the same name are added up.
    #[arg(long = "watch")]
    pub(super) watched: Vec<Watched>,
    /// Seed of the arrivals.
    #[arg(long, default_value_t = 1)]
    pub(super) seed: u64,
}

/// A server to load: the authority of requests, and the address that they are sent to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Target {
    pub(super) authority: String,
    pub(super) address: SocketAddr,
}

impl std::str::FromStr for Target {
    type Err = String;
    fn from_str(text: &str) -> Result<Target, String> {
        let (authority, address) = text
            .split_once('@')
            .ok_or("expected AUTHORITY@ADDRESS:PORT")?;
        let address = address
            .parse()
            .map_err(|error| format!("{address}: {error}"))?;
        Ok(Target {
            authority: authority.to_owned(),
            address,
        })
    }
}

/// A process tree whose CPU time and memory are read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Watched {
    name: String,
    pid: u32,
}

impl std::str::FromStr for Watched {
    type Err = String;
    fn from_str(text: &str) -> Result<Watched, String> {
        let (name, pid) = text.split_once('=').ok_or("expected NAME=PID")?;
        let pid = pid.parse().map_err(|error| format!("{pid}: {error}"))?;
        Ok(Watched {
            name: name.to_owned(),
            pid,
        })
    }
}

/// The results of one run. Latencies are in microseconds.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
pub(super) struct Outcome {
    /// Length of the window.
    pub(super) seconds: f64,
    /// Requests that got a correct answer within the window.
    pub(super) requests: u64,
    /// Failures by kind, over the whole run. A run with any is invalid.
    pub(super) errors: BTreeMap<String, u64>,
    pub(super) mean_us: f64,
    pub(super) p50_us: f64,
    pub(super) p90_us: f64,
    pub(super) p99_us: f64,
    pub(super) p999_us: f64,
    pub(super) max_us: f64,
    /// The largest number of due requests that waited for a free connection.
    pub(super) backlog: usize,
    /// CPU of each watched process tree, and of the load generator as `client`.
    pub(super) cpu: BTreeMap<String, account::Usage>,
    /// Nanoseconds of CPU by the name of the thread, of all watched trees together.
    pub(super) threads: BTreeMap<String, u64>,
    /// Memory of each watched tree at the end of the window, all connections open.
    pub(super) memory: BTreeMap<String, account::Memory>,
    /// How busy each core was, 0 to 1.
    pub(super) cores: Vec<f64>,
    /// Latency over time, if asked for.
    #[serde(default)]
    pub(super) history: Vec<Slice>,
}

impl Outcome {
    /// Cores that a process tree has used, on average.
    pub(super) fn cores(&self, name: &str) -> f64 {
        let used = self.cpu.get(name).map_or(0, |used| used.cpu_ns);
        used as f64 / 1e9 / self.seconds
    }

    /// Requests answered each second.
    pub(super) fn per_s(&self) -> f64 {
        self.requests as f64 / self.seconds
    }

    /// Microseconds of CPU time for each request, of the process tree that was watched by this name.
    pub(super) fn cpu_us(&self, of: &str) -> f64 {
        let used = self.cpu.get(of).copied().unwrap_or_default();
        used.cpu_ns as f64 / 1e3 / self.requests as f64
    }

    /// Checks whether a run counts.
    ///
    /// # Errors
    /// When it had failures or no answers, or carried less than was offered.
    pub(super) fn check(&self, rate: Option<f64>) -> anyhow::Result<()> {
        anyhow::ensure!(self.errors.is_empty(), "errors: {:?}", self.errors);
        anyhow::ensure!(self.requests > 0, "no request was answered");
        let carried = self.per_s();
        if let Some(rate) = rate {
            anyhow::ensure!(
                carried >= rate * CARRIED_SHARE,
                "carried {carried:.0} of {rate:.0} requests per second"
            );
        }
        Ok(())
    }
}

/// Runs the load and prints the outcome as one line of JSON.
pub fn run(options: &Load) -> anyhow::Result<()> {
    // The kernel may otherwise fire timers 50 µs late, which the latencies would show.
    rustix::thread::set_current_timer_slack(NonZeroU64::new(1))?;
    let outcome = Generator::new(options)?.run(options)?;
    let mut line = serde_json::to_vec(&outcome)?;
    line.push(b'\n');
    std::io::stdout().write_all(&line).context("stdout")
}

struct Generator {
    epoll: rustix::fd::OwnedFd,
    connections: Vec<Connection>,
    body_bytes: u64,
    /// Connections that carry requests.
    active: Vec<usize>,
    /// Whether the schedule pauses, so that each connection sends its next request at once.
    flat_out: bool,
    schedule: Option<Schedule>,
    /// Requests still to be started, when the run is bounded by their number.
    budget: Option<u64>,
    in_flight: usize,
    tally: Tally,
    scratch: Vec<u8>,
}

impl Generator {
    fn new(options: &Load) -> anyhow::Result<Generator> {
        let epoll = epoll::create(epoll::CreateFlags::CLOEXEC)?;
        let shape = Shape {
            head: options.head,
            body_bytes: options.send_bytes,
            answer_bytes: options.body_bytes,
            changing: options.changing,
            random_body: false,
            tail: options.path_end.clone(),
        };
        let mut connections = Vec::new();
        for index in 0..options.connections as usize {
            let target = &options.targets[index % options.targets.len()];
            let request = Request::new(&shape, &target.authority, index as u64);
            let connection = Connection::open(target.address, request)
                .with_context(|| format!("cannot connect to {}", target.address))?;
            let data = epoll::EventData::new_u64(index as u64);
            epoll::add(&epoll, &connection, data, epoll::EventFlags::IN)?;
            connections.push(connection);
        }
        let active = (0..connections.len()).step_by(options.active_every as usize);
        let rate = match options.phases.first() {
            Some(phase) => phase.rate.or(Some(1.0)),
            None => options.pace.rate,
        };
        Ok(Generator {
            epoll,
            connections,
            body_bytes: options.body_bytes,
            active: active.clone().collect(),
            flat_out: false,
            schedule: rate.map(|rate| Schedule::new(rate, active, options.pace.seed)),
            budget: options.pace.requests,
            in_flight: 0,
            tally: Tally::new()?,
            // as much of a body of one MiB as arrives at once
            scratch: vec![
                0;
                if options.body_bytes > 64 << 10 {
                    256 << 10
                } else {
                    16 << 10
                }
            ],
        })
    }

    fn run(mut self, options: &Load) -> anyhow::Result<Outcome> {
        let started = Instant::now();
        if let Some(slice_ms) = options.history {
            self.tally.keep_history(Duration::from_millis(slice_ms));
        }
        if let Some(schedule) = &mut self.schedule {
            schedule.start(started);
        } else {
            for index in self.active.clone() {
                self.begin(index, Instant::now());
            }
        }
        if !options.phases.is_empty() {
            return self.run_phases(options);
        }
        let start = if options.pace.requests.is_some() {
            let start = edge(&options.pace.watched)?;
            self.until(None)?;
            start
        } else {
            self.until(Some(
                started + Duration::from_secs_f64(options.pace.warm_up),
            ))?;
            self.tally.begin_window();
            let start = edge(&options.pace.watched)?;
            self.until(Some(
                start.at + Duration::from_secs_f64(options.pace.seconds),
            ))?;
            start
        };
        let end = edge(&options.pace.watched)?;
        self.tally
            .outcome(&start, &end, &options.pace.watched, self.schedule.as_ref())
    }

    /// Works through the phases, over and over, until the time is up.
    fn run_phases(mut self, options: &Load) -> anyhow::Result<Outcome> {
        let start = edge(&options.pace.watched)?;
        let end = start.at + Duration::from_secs_f64(options.pace.seconds);
        for phase in options.phases.iter().cycle() {
            let now = Instant::now();
            if now >= end {
                break;
            }
            println!("phase {}", unix_ms()?);
            self.change(phase.rate, now);
            self.until(Some(end.min(now + Duration::from_secs_f64(phase.seconds))))?;
        }
        let end = edge(&options.pace.watched)?;
        self.tally
            .outcome(&start, &end, &options.pace.watched, self.schedule.as_ref())
    }

    /// Continues at another rate, or at full speed.
    fn change(&mut self, rate: Option<f64>, now: Instant) {
        let Some(schedule) = &mut self.schedule else {
            return;
        };
        self.flat_out = rate.is_none();
        match rate {
            Some(rate) => schedule.resume(rate, now),
            None => {
                for index in schedule.stop() {
                    self.begin(index, now);
                }
            }
        }
    }

    /// Works until `end`, or until the budget is used and every answer has come.
    fn until(&mut self, end: Option<Instant>) -> anyhow::Result<()> {
        let mut events = Vec::with_capacity(512);
        loop {
            let now = Instant::now();
            if end.is_some_and(|end| now >= end) || (self.budget == Some(0) && self.in_flight == 0)
            {
                return Ok(());
            }
            self.tally.check()?;
            while let Some((index, due)) = self.schedule.as_mut().and_then(|s| s.next_due(now)) {
                self.begin(index, due);
            }
            let wake = [end, self.schedule.as_ref().and_then(Schedule::wakes)];
            let wake = wake.into_iter().flatten().min();
            let wait = wake.map(|wake| wake.saturating_duration_since(Instant::now()));
            let wait = wait.map(rustix::time::Timespec::try_from).transpose()?;
            events.clear();
            let space = rustix::buffer::spare_capacity(&mut events);
            match epoll::wait(&self.epoll, space, wait.as_ref()) {
                Ok(_) | Err(rustix::io::Errno::INTR) => {}
                Err(error) => return Err(error).context("epoll_wait"),
            }
            for event in &events {
                self.receive(usize::try_from(event.data.u64())?)?;
            }
        }
    }

    /// Sends the next request of a connection, which was due at `due`.
    fn begin(&mut self, index: usize, due: Instant) {
        match &mut self.budget {
            Some(0) => return,
            Some(left) => *left -= 1,
            None => {}
        }
        self.in_flight += 1;
        if self.connections[index].send(due).is_err() {
            // The reading side will find the connection broken and count it once.
        }
    }

    fn receive(&mut self, index: usize) -> anyhow::Result<()> {
        let connection = &mut self.connections[index];
        match connection.receive(&mut self.scratch, self.body_bytes) {
            Ok(Progress::Waiting) => return Ok(()),
            Ok(Progress::Answered { due }) => {
                self.tally.answered(due);
                self.in_flight -= 1;
            }
            Err(failure) => {
                self.tally.failed(failure.name());
                if connection.busy() {
                    self.in_flight -= 1;
                }
                self.reopen(index, failure)?;
            }
        }
        match &mut self.schedule {
            Some(schedule) if !self.flat_out => schedule.freed(index),
            _ => self.begin(index, Instant::now()),
        }
        Ok(())
    }

    fn reopen(&mut self, index: usize, failure: Failure) -> anyhow::Result<()> {
        let connection = &mut self.connections[index];
        connection
            .reopen()
            .with_context(|| format!("cannot connect again after {failure:?}"))?;
        let data = epoll::EventData::new_u64(index as u64);
        epoll::add(&self.epoll, &*connection, data, epoll::EventFlags::IN)?;
        Ok(())
    }
}

fn unix_ms() -> anyhow::Result<u128> {
    let now = std::time::SystemTime::now();
    Ok(now.duration_since(std::time::UNIX_EPOCH)?.as_millis())
}

#[cfg(test)]
mod tests;
