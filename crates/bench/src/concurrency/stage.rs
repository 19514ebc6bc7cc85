//! The processes beside the proxies, and where all of them run: proxies on core 0, load generator, consumer and
//! providers on core 1, in control groups of their own.

use std::ffi::OsString;
use std::io::{BufRead, BufReader};
use std::net::{Ipv4Addr, SocketAddr};
use std::path::PathBuf;
use std::time::{Duration, Instant};

use anyhow::Context;

use super::consumer::ConsumerCounts;
use super::plan::{Room, SIZES, WORK_US};
use super::provider::ProviderEndpoint;
use super::quota::{self, Periods};
use crate::cgroup::QuotaGroup;
use crate::child::{Child, Confinement, words};
use crate::load::Outcome;
use crate::provider::{ANSWER_BYTES, Counts};
use crate::stage::parse;
use crate::systems::{Running, System};

/// How much longer than planned a load generator may take.
const LATE: Duration = Duration::from_secs(20);

/// A load: the number of connections, how long it lasts, and how long a provider waits for each request.
#[derive(Clone, Copy)]
pub(super) struct LoadProfile {
    pub(super) connections: u32,
    pub(super) wait_ms: u64,
    pub(super) warm_up_s: f64,
    pub(super) window_s: f64,
}

/// What was counted in a run.
pub(super) struct RunOutcome {
    pub(super) outcome: Outcome,
    pub(super) consumer: ConsumerCounts,
    pub(super) providers: [Counts; 3],
    pub(super) mean_at_each: [f64; 3],
    pub(super) throttled: [f64; 3],
}

/// Running providers, and control groups for all processes. Fields are dropped in this order: a group can only be
/// removed once no process is inside.
pub(super) struct ConcurrencyStage {
    providers: Vec<Child>,
    pub(super) endpoints: Vec<ProviderEndpoint>,
    dir: tempfile::TempDir,
    client: Confinement,
    consumer: Confinement,
    /// One for each system; without a group where groups are not allowed.
    places: Vec<Confinement>,
    /// The groups of the providers; empty where groups are not allowed.
    provider_groups: Vec<PathBuf>,
    /// Why there are no groups, so that all providers have the same size.
    pub(super) no_groups: Option<String>,
    _groups: Vec<QuotaGroup>,
}

impl ConcurrencyStage {
    /// Makes the groups and starts the providers, which have no quota yet.
    ///
    /// # Errors
    /// When a provider does not start.
    pub(super) fn set(systems: &[System], room: &Room) -> anyhow::Result<ConcurrencyStage> {
        let dir = tempfile::Builder::new().prefix("heddle-lab-").tempdir()?;
        let (groups, no_groups) = match groups(systems) {
            Ok(groups) => (groups, None),
            Err(error) => (Vec::new(), Some(format!("{error:#}"))),
        };
        // Groups are in the order in which they are made: systems, the load generator, the consumer, providers.
        let place = |core, index: usize| Confinement {
            core: Some(core),
            groups: groups
                .get(index)
                .map(|g| g.dir().to_owned())
                .into_iter()
                .collect(),
        };
        let first = systems.len() + 2;
        let (mut providers, mut endpoints) = (Vec::new(), Vec::new());
        for (index, (size, at_once)) in SIZES.iter().zip(room.at_once).enumerate() {
            let address = Ipv4Addr::new(127, 3, 0, 1 + index as u8);
            let listen = format!("{address}:0");
            let at_once_text = at_once.to_string();
            let work_text = WORK_US.to_string();
            let mut arguments = vec!["provider", "--listen", &listen];
            arguments.extend(["--at-once", &at_once_text, "--work-us", &work_text]);
            let name = format!("the {} provider", size.name);
            let place = place(1, first + index);
            let log = dir.path().join(format!("{}.log", size.name));
            let (child, port) = serving(&name, &place, words(arguments), &log)?;
            providers.push(child);
            endpoints.push(ProviderEndpoint {
                name: size.name,
                address,
                port,
                room: at_once,
            });
        }
        Ok(ConcurrencyStage {
            providers,
            endpoints,
            dir,
            client: place(1, systems.len()),
            consumer: place(1, systems.len() + 1),
            places: (0..systems.len()).map(|index| place(0, index)).collect(),
            provider_groups: groups
                .iter()
                .skip(first)
                .map(|g| g.dir().to_owned())
                .collect(),
            no_groups,
            _groups: groups,
        })
    }

    /// The core and the group that a system runs in.
    pub(super) fn place(&self, index: usize) -> &Confinement {
        &self.places[index]
    }

    /// Limits the small provider to `small_cores` cores, and the larger ones to multiples of that. Returns the limit of
    /// each; empty where there are no groups. If the kernel's smallest quota is more, all get more.
    ///
    /// # Errors
    /// When the kernel refuses.
    pub(super) fn hold(&self, small_cores: f64) -> anyhow::Result<Vec<f64>> {
        let small_cores = small_cores.max(quota::LEAST);
        let held = |(group, size): (&PathBuf, &super::plan::Size)| {
            quota::hold(group, small_cores * f64::from(size.times))
        };
        self.provider_groups.iter().zip(&SIZES).map(held).collect()
    }

    /// Loads a system.
    ///
    /// # Errors
    /// When a process fails or takes too long.
    pub(super) fn load(&self, system: &Running, load: LoadProfile) -> anyhow::Result<RunOutcome> {
        let targets = system.targets.iter();
        let targets: Vec<_> = targets.map(|target| (target.clone(), 1)).collect();
        self.generate(&targets, &system.watched(), load)
    }

    /// Loads the providers without any proxy, with `shares` connections to each.
    ///
    /// # Errors
    /// When a process fails or takes too long.
    pub(super) fn load_directly(
        &self,
        shares: [u32; 3],
        load: LoadProfile,
    ) -> anyhow::Result<RunOutcome> {
        let target = |(endpoint, share): (&ProviderEndpoint, u32)| {
            let address = SocketAddr::from((endpoint.address, endpoint.port));
            (format!("provider.lab@{address}"), share)
        };
        let targets = self.endpoints.iter().zip(shares);
        let targets: Vec<_> = targets.map(target).collect();
        self.generate(&targets, &[], load)
    }

    fn generate(
        &self,
        targets: &[(String, u32)],
        watched: &[OsString],
        load: LoadProfile,
    ) -> anyhow::Result<RunOutcome> {
        let shares: Vec<String> = targets.iter().map(|(_, share)| share.to_string()).collect();
        let targets = targets.iter().flat_map(|(target, _)| ["--target", target]);
        let mut consumer = words(["consumer", "--listen", "127.0.0.1:0"]);
        consumer.extend(words(targets));
        consumer.extend(words(["--shares", &shares.join(",")]));
        let log = self.dir.path().join("consumer.log");
        let (consumer, port) = serving("the consumer", &self.consumer, consumer, &log)?;
        let consumer_address = SocketAddr::from((Ipv4Addr::LOCALHOST, port));

        let mut command = vec![std::env::current_exe()?.into_os_string()];
        let target = format!("consumer.lab@{consumer_address}");
        command.extend(words(["load", "--head", "browser", "--target", &target]));
        command.extend(words(["--body-bytes", &ANSWER_BYTES.to_string()]));
        command.extend(words(["--path-end", &load.wait_ms.to_string()]));
        command.extend(words(["--connections", &load.connections.to_string()]));
        command.extend(words(["--warm-up", &load.warm_up_s.to_string()]));
        command.extend(words(["--seconds", &load.window_s.to_string()]));
        command.extend_from_slice(watched);
        let pids = self.providers.iter().map(|child| ("provider", child.pid()));
        for (name, pid) in pids.chain([("consumer", consumer.pid())]) {
            command.extend(words(["--watch", &format!("{name}={pid}")]));
        }
        let log = self.dir.path().join("load.log");
        // Reading the counters resets them: earlier requests do not belong to this run.
        self.counts()?;
        let (began, periods) = (Instant::now(), self.periods()?);
        let child = Child::start("the load generator", &self.client, &command, &log, true)?;
        let within = Duration::from_secs_f64(load.warm_up_s + load.window_s) + LATE;
        let outcome = parse(&child.finish(within)?)?;
        let took_us = began.elapsed().as_micros() as f64;
        let providers = self.counts()?;
        let ended = self.periods()?;
        let mut throttled = [0.0; 3];
        for (part, (end, start)) in throttled.iter_mut().zip(ended.iter().zip(&periods)) {
            *part = end.throttled_since(start);
        }
        Ok(RunOutcome {
            outcome,
            consumer: ConsumerCounts::ask(consumer_address)?,
            mean_at_each: providers.map(|counts| counts.there_us as f64 / took_us),
            providers,
            throttled,
        })
    }

    /// The counters of each provider since they were last read.
    fn counts(&self) -> anyhow::Result<[Counts; 3]> {
        let mut counts = [Counts::default(); 3];
        for (counts, endpoint) in counts.iter_mut().zip(&self.endpoints) {
            let address = SocketAddr::from((endpoint.address, endpoint.port));
            *counts =
                Counts::ask(address).with_context(|| format!("the {} provider", endpoint.name))?;
        }
        Ok(counts)
    }

    fn periods(&self) -> anyhow::Result<Vec<Periods>> {
        let groups = self.provider_groups.iter();
        groups.map(|group| Periods::of(group)).collect()
    }
}

/// Starts a subcommand of this program that prints its port once it listens.
fn serving(
    name: &str,
    place: &Confinement,
    arguments: Vec<OsString>,
    log: &std::path::Path,
) -> anyhow::Result<(Child, u16)> {
    let mut command = vec![std::env::current_exe()?.into_os_string()];
    command.extend(arguments);
    let mut child = Child::start(name, place, &command, log, true)?;
    let mut line = String::new();
    BufReader::new(child.output()?).read_line(&mut line)?;
    let port = line.trim().parse();
    let port = port.with_context(|| format!("{name} did not start"))?;
    Ok((child, port))
}

/// A group for each system, the load generator, the consumer and each provider.
fn groups(systems: &[System]) -> anyhow::Result<Vec<QuotaGroup>> {
    let names = systems.iter().map(|system| system.name.as_str());
    let names = names.chain(["load", "consumer"]);
    let names = names.chain(SIZES.map(|size| size.name));
    names.map(QuotaGroup::create).collect()
}
