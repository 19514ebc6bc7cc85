//! The processes of the experiment and where they run: proxies on core 0, each in a control group of its
//! own; load generator and upstream on core 1.

use std::ffi::OsString;
use std::path::PathBuf;
use std::time::Duration;

use anyhow::Context;

use super::cgroup::QuotaGroup;
use super::child::{Child, Confinement, words};
use super::load::Outcome;
use super::report::Cell;
use super::systems::{Running, System, Traffic, Work};
use super::upstream::Serving;

/// All processes except the proxies themselves. Fields are dropped in this order: a group can only be removed once no
/// process is inside.
pub(super) struct Stage<'a> {
    pub(super) systems: &'a [System],
    upstream: Serving,
    pub(super) client: Confinement,
    pub(super) dir: tempfile::TempDir,
    lab: PathBuf,
    warm_up_s: f64,
    traffic: Traffic,
    _load_group: Option<QuotaGroup>,
    /// One group per system, or why there is none.
    pub(super) groups: Result<Vec<QuotaGroup>, String>,
}

impl<'a> Stage<'a> {
    /// Makes the groups, where that is allowed, and starts an upstream with `addresses` addresses.
    ///
    /// # Errors
    /// When the upstream does not start.
    pub(super) fn set(
        systems: &'a [System],
        addresses: u32,
        warm_up_s: f64,
        traffic: Traffic,
    ) -> anyhow::Result<Stage<'a>> {
        let groups: anyhow::Result<Vec<QuotaGroup>> = systems
            .iter()
            .map(|system| QuotaGroup::create(&system.name))
            .collect();
        let load_group = if groups.is_ok() {
            Some(QuotaGroup::create("load")?)
        } else {
            None
        };
        let client = Confinement {
            core: Some(1),
            groups: load_group
                .iter()
                .map(|group| group.dir().to_owned())
                .collect(),
        };
        let dir = tempfile::Builder::new().prefix("heddle-lab-").tempdir()?;
        let upstream = match traffic {
            Traffic::Grpc => Serving::of(&["grpc-upstream"], &client, dir.path()),
            _ => Serving::start(addresses, &client, dir.path()),
        };
        Ok(Stage {
            systems,
            upstream: upstream?,
            client,
            dir,
            lab: std::env::current_exe()?,
            warm_up_s,
            traffic,
            _load_group: load_group,
            groups: groups.map_err(|error| format!("{error:#}")),
        })
    }

    /// Work with a number of services and of endpoints of each, all of them at the upstream.
    pub(super) fn work(&self, services: u32, endpoints: u32) -> Work {
        Work {
            traffic: self.traffic,
            ..Work::new(services, endpoints, self.upstream.port)
        }
    }

    /// Starts every system with one service.
    ///
    /// # Errors
    /// When one of them does not start.
    pub(super) fn start_all(&self) -> anyhow::Result<Vec<Running>> {
        let work = self.work(1, 1);
        let start =
            |(index, system): (usize, &System)| system.start(&work, &self.place(index), &[]);
        self.systems.iter().enumerate().map(start).collect()
    }

    /// The core and the group that a system runs in.
    pub(super) fn place(&self, index: usize) -> Confinement {
        let groups = self
            .groups
            .as_ref()
            .ok()
            .map(|groups| groups[index].dir().to_owned());
        Confinement {
            core: Some(0),
            groups: groups.into_iter().collect(),
        }
    }

    /// The indices of the systems, beginning with another one each turn.
    pub(super) fn order(&self, turn: usize) -> Vec<usize> {
        let count = self.systems.len();
        (0..count).map(|index| (index + turn) % count).collect()
    }

    /// The command line of the load generator, without duration and rate.
    pub(super) fn load_command(&self, targets: &[String], cell: Cell) -> Vec<OsString> {
        let mut command = vec![self.lab.clone().into_os_string()];
        let load = match self.traffic {
            Traffic::Grpc => "grpc-load",
            _ => "load",
        };
        command.extend(words([
            load,
            "--connections",
            &cell.connections.to_string(),
        ]));
        command.extend(words(["--body-bytes", &cell.body_bytes.to_string()]));
        command.extend(
            targets
                .iter()
                .flat_map(|target| words(["--target", target])),
        );
        command
    }

    /// Loads one proxy for a window of `seconds`, at a rate or at full speed.
    ///
    /// # Errors
    /// When the load generator fails.
    pub(super) fn load(
        &self,
        proxy: &Running,
        cell: Cell,
        rate: Option<f64>,
        seconds: f64,
    ) -> anyhow::Result<Outcome> {
        self.load_with(proxy, cell, &[], rate, seconds)
    }

    /// The same, with more arguments for the load generator.
    ///
    /// # Errors
    /// When the load generator fails.
    pub(super) fn load_with(
        &self,
        proxy: &Running,
        cell: Cell,
        more: &[OsString],
        rate: Option<f64>,
        seconds: f64,
    ) -> anyhow::Result<Outcome> {
        let mut command = self.load_command(&proxy.targets, cell);
        command.extend_from_slice(more);
        command.extend(words(["--seconds", &seconds.to_string()]));
        command.extend(words(["--warm-up", &self.warm_up_s.to_string()]));
        command.extend(proxy.watched());
        command.extend(words([
            "--watch",
            &format!("upstream={}", self.upstream.child.pid()),
        ]));
        if let Some(rate) = rate {
            command.extend(words(["--rate", &rate.to_string()]));
        }
        let log = self.dir.path().join("load.log");
        let child = Child::start("the load generator", &self.client, &command, &log, true)?;
        let within = Duration::from_secs_f64(seconds + self.warm_up_s + 20.0);
        parse(&child.finish(within)?)
    }
}

/// Reads what the load generator prints.
///
/// # Errors
/// When that is not an outcome.
pub(super) fn parse(printed: &str) -> anyhow::Result<Outcome> {
    serde_json::from_str(printed).context("the load generator printed no valid outcome")
}
