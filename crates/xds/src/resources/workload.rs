//! Workloads.

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::PathBuf;

use heddle_model::{
    Class, Command, ControlGroup, Mode, Probe, Proxy, Qos, Workload, WorkloadName, WorkloadPort,
};

use super::fields::{account, ip, ip_bytes, ips, or_empty, port, some, some_node, some_text};
use super::{InvalidResource, name};
use crate::proto;
use crate::trust::Invalid;

impl From<&Workload> for proto::Workload {
    fn from(workload: &Workload) -> Self {
        let more = workload.more_addresses.iter();
        Self {
            labels: BTreeMap::clone(&workload.labels),
            service_account: workload.service_account.to_string(),
            address: ip_bytes(workload.address),
            more_addresses: more.copied().map(ip_bytes).collect(),
            ports: workload.ports.iter().map(Into::into).collect(),
            weight: workload.weight,
            node: or_empty(workload.node.as_ref()),
            mode: proto::Mode::from(workload.mode).into(),
            policies: workload.policies.iter().map(name::of_policy).collect(),
            probes: workload.probes.iter().map(Into::into).collect(),
            qos: (!workload.qos.is_default()).then(|| (&workload.qos).into()),
            command: workload.command.as_ref().map(Into::into),
            envoy: match workload.proxy {
                Proxy::Node => None,
                Proxy::Envoy { lazy } => Some(proto::Envoy { lazy }),
            },
        }
    }
}

pub(super) fn workload(
    name: WorkloadName,
    message: proto::Workload,
) -> Result<Workload, InvalidResource> {
    let policy = |text: &String| name::parse_policy(text).ok_or(Invalid("workload.policies"));
    let mode = proto::Mode::try_from(message.mode).map_err(|_| Invalid("workload.mode"))?;
    let workload = Workload {
        name,
        labels: message.labels.into(),
        service_account: account(&message.service_account, "workload.service_account")?,
        address: ip(&message.address, "workload.address")?,
        uses: Vec::new(),
        more_addresses: ips(&message.more_addresses, "workload.more_addresses")?,
        ports: list(message.ports)?,
        weight: message.weight,
        node: some_node(&message.node, "workload.node")?,
        mode: mode.try_into()?,
        policies: message
            .policies
            .iter()
            .map(policy)
            .collect::<Result<_, _>>()?,
        probes: list(message.probes)?,
        qos: message.qos.unwrap_or_default().try_into()?,
        command: message.command.map(Into::into),
        proxy: match message.envoy {
            None => Proxy::Node,
            Some(proto::Envoy { lazy }) => Proxy::Envoy { lazy },
        },
    };
    workload
        .check_invariants()
        .map_err(InvalidResource::Invariant)?;
    Ok(workload)
}

fn list<M, T: TryFrom<M, Error = Invalid>>(messages: Vec<M>) -> Result<Vec<T>, Invalid> {
    messages.into_iter().map(T::try_from).collect()
}

impl From<&WorkloadPort> for proto::WorkloadPort {
    fn from(port: &WorkloadPort) -> Self {
        Self {
            port: port.port.into(),
            name: or_empty(port.name.as_ref()),
        }
    }
}

impl TryFrom<proto::WorkloadPort> for WorkloadPort {
    type Error = Invalid;

    fn try_from(message: proto::WorkloadPort) -> Result<Self, Invalid> {
        Ok(Self {
            port: port(message.port, "workload.ports.port")?,
            name: some_text(message.name),
        })
    }
}

impl From<Mode> for proto::Mode {
    fn from(mode: Mode) -> Self {
        match mode {
            Mode::Permissive => Self::Permissive,
            Mode::Strict => Self::Strict,
        }
    }
}

impl TryFrom<proto::Mode> for Mode {
    type Error = Invalid;

    fn try_from(mode: proto::Mode) -> Result<Self, Invalid> {
        match mode {
            proto::Mode::Unspecified => Err(Invalid("workload.mode")),
            proto::Mode::Permissive => Ok(Self::Permissive),
            proto::Mode::Strict => Ok(Self::Strict),
        }
    }
}

impl From<&Probe> for proto::Probe {
    fn from(probe: &Probe) -> Self {
        Self {
            port: probe.port.into(),
            path: probe.path.clone(),
            query: probe.query.clone(),
        }
    }
}

impl TryFrom<proto::Probe> for Probe {
    type Error = Invalid;

    fn try_from(message: proto::Probe) -> Result<Self, Invalid> {
        Ok(Self {
            port: port(message.port, "workload.probes.port")?,
            path: message.path,
            query: message.query,
        })
    }
}

impl From<&Qos> for proto::Qos {
    fn from(qos: &Qos) -> Self {
        let class = match qos.class {
            Class::Online => proto::Class::Online,
            Class::Offline => proto::Class::Offline,
        };
        Self {
            class: class.into(),
            quota_turbo: qos.quota_turbo,
            quota_burst_us: qos.quota_burst_us,
            latency_p99_ms: qos.latency_p99_ms,
            cgroup: or_empty(qos.cgroup.as_ref()),
        }
    }
}

impl TryFrom<proto::Qos> for Qos {
    type Error = Invalid;

    fn try_from(message: proto::Qos) -> Result<Self, Invalid> {
        let class = proto::Class::try_from(message.class);
        Ok(Self {
            class: match class.map_err(|_| Invalid("workload.qos.class"))? {
                proto::Class::Online => Class::Online,
                proto::Class::Offline => Class::Offline,
            },
            quota_turbo: message.quota_turbo,
            quota_burst_us: message.quota_burst_us,
            latency_p99_ms: message.latency_p99_ms,
            cgroup: some(&message.cgroup, control_group)?,
        })
    }
}

fn control_group(path: &str) -> Result<ControlGroup, Invalid> {
    let group = ControlGroup::new(path).ok();
    // With a slash in front it would be the same group.
    let group = group.filter(|group| group.as_str() == path);
    group.ok_or(Invalid("workload.qos.cgroup"))
}

impl From<&Command> for proto::Command {
    fn from(command: &Command) -> Self {
        let working_dir = command.working_dir.as_ref();
        Self {
            argv: command.argv.clone(),
            env: command.env.clone(),
            working_dir: working_dir
                .map(|dir| dir.as_os_str().as_bytes().to_vec())
                .unwrap_or_default(),
        }
    }
}

impl From<proto::Command> for Command {
    fn from(message: proto::Command) -> Self {
        let dir = message.working_dir;
        Self {
            argv: message.argv,
            env: message.env,
            working_dir: (!dir.is_empty()).then(|| PathBuf::from(OsString::from_vec(dir))),
        }
    }
}
