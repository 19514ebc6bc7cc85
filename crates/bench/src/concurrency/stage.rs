//! The processes beside the proxies, and where all of them run: proxies on core 0, load generator and
//! providers on core 1, in control groups of their own.

use std::io::{BufRead, BufReader};
use std::net::{Ipv4Addr, SocketAddr};
use std::time::Duration;

use anyhow::Context;

use super::plan::{Room, SIZES};
use super::provider::ProviderEndpoint;
use crate::cgroup::QuotaGroup;
use crate::child::{Child, Confinement, words};
use crate::load::Outcome;
use crate::provider::{ANSWER_BYTES, Counts};
use crate::stage::parse;
use crate::systems::{Running, System};

/// How late a load generator may be.
const LATE: Duration = Duration::from_secs(20);

/// A load: so many connections, for so long, each request for so long at a provider.
#[derive(Clone, Copy)]
pub(super) struct LoadProfile {
    pub(super) connections: u32,
    pub(super) wait_ms: u64,
    pub(super) warm_up_s: f64,
    pub(super) window_s: f64,
}

/// Providers that run, and groups for all processes. Fields end in this order: a group can only be removed
/// once no process is inside.
pub(super) struct ConcurrencyStage {
    providers: Vec<Child>,
    pub(super) endpoints: Vec<ProviderEndpoint>,
    dir: tempfile::TempDir,
    client: Confinement,
    /// For each system, as far as that is allowed.
    places: Vec<Confinement>,
    /// Why no process is in a group, and providers are all of one size.
    pub(super) no_groups: Option<String>,
    _groups: Vec<QuotaGroup>,
}

impl ConcurrencyStage {
    /// Makes the groups and starts the providers.
    ///
    /// # Errors
    /// When a provider does not start.
    pub(super) fn set(systems: &[System], room: &Room) -> anyhow::Result<ConcurrencyStage> {
        let dir = tempfile::Builder::new().prefix("heddle-lab-").tempdir()?;
        let (groups, no_groups) = match groups(systems) {
            Ok(groups) => (groups, None),
            Err(error) => (Vec::new(), Some(format!("{error:#}"))),
        };
        // In the order in which they are made: systems, the load generator, providers.
        let place = |core, index: usize| Confinement {
            core: Some(core),
            groups: groups
                .get(index)
                .map(|g| g.dir().to_owned())
                .into_iter()
                .collect(),
        };
        let (mut providers, mut endpoints) = (Vec::new(), Vec::new());
        for (index, (size, at_once)) in SIZES.iter().zip(room.at_once).enumerate() {
            let address = Ipv4Addr::new(127, 3, 0, 1 + index as u8);
            let mut command = vec![std::env::current_exe()?.into_os_string()];
            command.extend(words(["provider", "--listen", &format!("{address}:0")]));
            command.extend(words(["--at-once", &at_once.to_string()]));
            let log = dir.path().join(format!("{}.log", size.name));
            let place = place(1, systems.len() + 1 + index);
            let name = format!("the {} provider", size.name);
            let mut child = Child::start(&name, &place, &command, &log, true)?;
            let mut line = String::new();
            BufReader::new(child.output()?).read_line(&mut line)?;
            let port = line.trim().parse();
            let port = port.with_context(|| format!("{name} did not start"))?;
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
            places: (0..systems.len()).map(|index| place(0, index)).collect(),
            no_groups,
            _groups: groups,
        })
    }

    /// Where a system runs.
    pub(super) fn place(&self, index: usize) -> &Confinement {
        &self.places[index]
    }

    /// Loads a system.
    ///
    /// # Errors
    /// When the load generator gives up.
    pub(super) fn load(&self, system: &Running, load: LoadProfile) -> anyhow::Result<Outcome> {
        let mut more = words(
            system
                .targets
                .iter()
                .flat_map(|target| ["--target", target]),
        );
        more.extend(system.watched());
        self.generate(more, load)
    }

    /// What a request takes without any proxy, a connection for each provider: the mean, in milliseconds.
    ///
    /// # Errors
    /// When the load generator gives up, or a provider fails.
    pub(super) fn service_ms(&self, wait_ms: u64, seconds: f64) -> anyhow::Result<f64> {
        let targets = self.endpoints.iter().flat_map(|endpoint| {
            let target = format!("provider.lab@{}:{}", endpoint.address, endpoint.port);
            words(["--target", &target])
        });
        let load = LoadProfile {
            connections: SIZES.len() as u32,
            wait_ms,
            warm_up_s: 0.3,
            window_s: seconds,
        };
        let outcome = self.generate(targets.collect(), load)?;
        outcome.check(None)?;
        Ok(outcome.mean_us / 1e3)
    }

    fn generate(
        &self,
        more: Vec<std::ffi::OsString>,
        load: LoadProfile,
    ) -> anyhow::Result<Outcome> {
        let mut command = vec![std::env::current_exe()?.into_os_string()];
        command.extend(words(["load", "--head", "browser", "--changing"]));
        command.extend(words(["--send-bytes", "128"]));
        command.extend(words(["--body-bytes", &ANSWER_BYTES.to_string()]));
        command.extend(words(["--path-end", &load.wait_ms.to_string()]));
        command.extend(words(["--connections", &load.connections.to_string()]));
        command.extend(words(["--warm-up", &load.warm_up_s.to_string()]));
        command.extend(words(["--seconds", &load.window_s.to_string()]));
        command.extend(more);
        for provider in &self.providers {
            command.extend(words(["--watch", &format!("provider={}", provider.pid())]));
        }
        let log = self.dir.path().join("load.log");
        let child = Child::start("the load generator", &self.client, &command, &log, true)?;
        let within = Duration::from_secs_f64(load.warm_up_s + load.window_s) + LATE;
        parse(&child.finish(within)?)
    }

    /// What each provider has counted since it was asked last.
    ///
    /// # Errors
    /// When one does not answer.
    pub(super) fn counts(&self) -> anyhow::Result<Vec<Counts>> {
        let ask = |endpoint: &ProviderEndpoint| {
            let address = SocketAddr::from((endpoint.address, endpoint.port));
            Counts::ask(address).with_context(|| format!("the {} provider", endpoint.name))
        };
        self.endpoints.iter().map(ask).collect()
    }
}

/// One for each system, the load generator and each provider; theirs have the weights of their sizes.
fn groups(systems: &[System]) -> anyhow::Result<Vec<QuotaGroup>> {
    let mut groups = Vec::new();
    for system in systems {
        groups.push(QuotaGroup::create(&system.name)?);
    }
    groups.push(QuotaGroup::create("load")?);
    for size in SIZES {
        let group = QuotaGroup::create(size.name)?;
        group.share(size.share)?;
        groups.push(group);
    }
    Ok(groups)
}
