//! Compiles LocalWorkloads into workloads.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::net::{IpAddr, Ipv4Addr};
use std::path::{Path, PathBuf};

use heddle_model::report::Cause;
use heddle_model::{
    Command, Name, NodeName, ServiceAccountName, Shared, SpiffeId, TrustDomain, Workload,
    WorkloadName, WorkloadPort,
};

use super::index::Index;
use super::{Scope, balancing, did_you_mean, mode, probe, proxy, qos};
use crate::check;
use crate::findings::Findings;
use crate::manifest::local::LocalWorkloadSpec;
use crate::manifest::node::FieldPath;
use crate::manifest::{Kind, Object};
use crate::{Addresses, Options, Placement};

/// The account of workloads that name none; it needs no manifest.
const DEFAULT_ACCOUNT: &str = "default";
/// Limit of ports of one workload.
const MAX_PORTS: usize = 256;
/// Limit of addresses of one workload beside the first.
const MAX_MORE_ADDRESSES: usize = 8;
/// Largest weight, that of a Gateway API backend.
pub(super) const MAX_WEIGHT: i64 = 1_000_000;

/// Compiles every LocalWorkload, sorted by name.
pub(super) fn compile(
    index: &Index<'_>,
    base: &Path,
    options: &Options,
    findings: &mut Findings,
) -> Vec<Workload> {
    let modes = mode::by_namespace(index, findings);
    let lazy = proxy::lazy_by_namespace(&index.namespaces, findings);
    let mut sockets: BTreeMap<(IpAddr, u16), (&WorkloadName, &Object)> = BTreeMap::new();
    let mut taken: BTreeSet<IpAddr> = index
        .workloads
        .values()
        .filter_map(|(_, body)| body.spec.address.parse().ok())
        .collect();
    let mut workloads = Vec::new();
    let mut labels = LabelSets::default();
    // Of two at one address the senior one has it.
    let mut by_seniority: Vec<_> = index.workloads.iter().collect();
    by_seniority.sort_by_cached_key(|(_, (object, _))| object.written.seniority());
    for (name, (object, body)) in by_seniority {
        let mut scope = Scope::of(object, findings);
        let node = node(&body.spec, &options.trust_domain, &mut scope);
        if node.is_none() && options.placement == Placement::ByNode {
            let (at, reason) = (
                FieldPath::of("spec"),
                "it does not say which node it is on: no node serves it",
            );
            match object.written.origin.is_registry() {
                true => {
                    let remedy = "register it with --node (spec.nodeName)";
                    scope.leave_out(Cause::Node, &at, reason, remedy);
                }
                false => scope.warn(&at, reason, "add nodeName"),
            }
            continue;
        }
        let is_written = !body.spec.address.is_empty();
        scope.findings.report.addresses.count(is_written);
        let (address, more_addresses) = match options.addresses {
            Addresses::Given => (stand_in(workloads.len()), Vec::new()),
            Addresses::Written => match address(&body.spec, options, &mut scope) {
                Some(address) => (
                    address,
                    more_addresses(&body.spec, address, options, &mut scope),
                ),
                None => continue,
            },
        };
        let ports = ports(&body.spec, &mut scope);
        let all = std::iter::once(address).chain(more_addresses.iter().copied());
        let listening = all.flat_map(|address| ports.iter().map(move |port| (address, port)));
        for (address, port) in listening {
            let before = sockets.insert((address, port.port), (name, object));
            if let Some((other, first)) = before.filter(|(other, _)| *other != name) {
                let at = &first.written;
                scope.error(
                    &FieldPath::of("spec.address"),
                    format!(
                        "LocalWorkload {other} has port {} of {address} already, in {}",
                        port.port,
                        at.origin_of(&FieldPath::of("spec.address"))
                    ),
                    match free_address(address, &taken) {
                        Some(free) => {
                            taken.insert(free);
                            format!("give one of them another port, or an address such as {free}")
                        }
                        None => "give one of them another port, or another address".to_owned(),
                    },
                );
            }
        }
        let service_account = service_account(index, object, &body.spec, &mut scope);
        check_identity(&options.trust_domain, &service_account, &mut scope);
        // Only checked here; the endpoints use it.
        let _room = balancing::max_requests(object, &mut scope);
        let by_namespace = modes.get(&name.namespace).copied();
        let is_lazy = lazy.get(&name.namespace).copied();
        let is_lazy = is_lazy.unwrap_or(options.lazy_envoys);
        workloads.push(Workload {
            name: name.clone(),
            labels: labels.of(&object.metadata.labels),
            service_account,
            address,
            more_addresses,
            weight: weight(&body.spec, &mut scope),
            node,
            mode: mode::of(object, &mut scope)
                .or(by_namespace)
                .unwrap_or(options.default_mode),
            policies: Vec::new(),
            probes: probe::compile(&body.spec, &ports, &mut scope),
            ports,
            qos: qos::of(object, &mut scope),
            proxy: proxy::of(object, is_lazy, options, &mut scope),
            uses: proxy::uses(object, &mut scope),
            command: command(&body.spec, &folder_of(object, base), &mut scope),
        });
    }
    workloads.sort_by(|a, b| a.name.cmp(&b.name));
    workloads
}

/// Sets of labels, each once: those of replicas are equal, and a map of its own for each takes half a kibibyte.
#[derive(Default)]
struct LabelSets(HashMap<BTreeMap<String, String>, Shared<BTreeMap<String, String>>>);

impl LabelSets {
    fn of(&mut self, labels: &BTreeMap<String, String>) -> Shared<BTreeMap<String, String>> {
        if let Some(known) = self.0.get(labels) {
            return known.clone();
        }
        let shared = Shared::from(labels.clone());
        self.0.insert(labels.clone(), shared.clone());
        shared
    }
}

fn address(spec: &LocalWorkloadSpec, options: &Options, scope: &mut Scope<'_>) -> Option<IpAddr> {
    let at = FieldPath::of("spec.address");
    if spec.address.is_empty() {
        let remedy = match scope.written.origin.is_registry() {
            true => "add address",
            false => "add address; in a lab heddle-lab up gives it one",
        };
        scope.error(&at, "this field is required", remedy);
        return None;
    }
    checked_address(&spec.address, &at, options, scope)
}

/// A placeholder for the address that a lab will assign: a unique one, in a range reserved for benchmarks (RFC 2544,
/// appendix C.2.2).
fn stand_in(position: usize) -> IpAddr {
    const FIRST: u32 = u32::from_be_bytes([198, 18, 0, 1]);
    let position = u32::try_from(position).unwrap_or(u32::MAX);
    IpAddr::V4(Ipv4Addr::from(FIRST.saturating_add(position)))
}

/// The addresses beside the first, sorted.
fn more_addresses(
    spec: &LocalWorkloadSpec,
    first: IpAddr,
    options: &Options,
    scope: &mut Scope<'_>,
) -> Vec<IpAddr> {
    let at = FieldPath::of("spec.addresses");
    let mut more = BTreeSet::new();
    let written = scope.at_most(&at, &spec.addresses, MAX_MORE_ADDRESSES);
    for (position, text) in written.iter().enumerate() {
        let at = at.index(position);
        let Some(address) = checked_address(text, &at, options, scope) else {
            continue;
        };
        if address == first || !more.insert(address) {
            let reason = format!("{address} is written twice");
            scope.error(&at, reason, "write here what it has beside spec.address");
        }
    }
    more.into_iter().collect()
}

fn checked_address(
    text: &str,
    path: &FieldPath,
    options: &Options,
    scope: &mut Scope<'_>,
) -> Option<IpAddr> {
    let address = scope.check(path, check::endpoint_address(text))?;
    if is_listener_range(address) {
        scope.error(
            path,
            format!("{address} is in 127.64.0.0/10, where Heddle puts its own listeners"),
            "take one below, such as 127.1.0.1",
        );
        return None;
    }
    scope.within(path, address, options)
}

/// How many addresses are tried for a free one.
const MAX_LOOKED_AT: u32 = 1_024;

/// A loopback address that no workload has: the next one, or one of 127.1.0.0/16 instead of 127.0.0.1, on which other
/// programs listen. `None` for other addresses: Heddle does not know which ones the machine has.
fn free_address(taken: IpAddr, all: &BTreeSet<IpAddr>) -> Option<IpAddr> {
    let IpAddr::V4(taken) = taken else {
        return None;
    };
    if !taken.is_loopback() {
        return None;
    }
    let first = match taken {
        Ipv4Addr::LOCALHOST => u32::from(Ipv4Addr::new(127, 1, 0, 1)),
        other => u32::from(other).saturating_add(1),
    };
    (first..first.saturating_add(MAX_LOOKED_AT))
        .filter(|bits| !matches!(bits & 0xff, 0 | 0xff))
        .map(|bits| IpAddr::V4(Ipv4Addr::from(bits)))
        .find(|free| free.is_loopback() && !is_listener_range(*free) && !all.contains(free))
}

/// Whether the address is in 127.64.0.0/10.
fn is_listener_range(address: IpAddr) -> bool {
    matches!(address, IpAddr::V4(v4) if v4.octets()[0] == 127 && v4.octets()[1] & 0xc0 == 0x40)
}

fn service_account(
    index: &Index<'_>,
    object: &Object,
    spec: &LocalWorkloadSpec,
    scope: &mut Scope<'_>,
) -> ServiceAccountName {
    let namespace = &object.namespace;
    let default = || ServiceAccountName {
        namespace: namespace.clone(),
        name: Name::parse(DEFAULT_ACCOUNT).expect("the default account has a valid name"),
    };
    let Some(text) = spec
        .service_account_name
        .as_deref()
        .filter(|text| !text.is_empty())
    else {
        return default();
    };
    let path = FieldPath::of("spec.serviceAccountName");
    match ServiceAccountName::new(namespace.as_str(), text) {
        Ok(account) if text == DEFAULT_ACCOUNT || index.accounts.contains(&account) => account,
        Ok(account) if scope.is_refused(Kind::ServiceAccount, namespace, &account.name) => account,
        Ok(account) => {
            let known = index
                .accounts
                .iter()
                .filter(|known| known.namespace == *namespace)
                .map(|known| known.name.as_str());
            let remedy = did_you_mean(text, known, "add the ServiceAccount");
            scope.error(
                &path,
                format!("there is no ServiceAccount {account}"),
                remedy,
            );
            account
        }
        Err(error) => {
            scope.error(&path, error.to_string(), "");
            default()
        }
    }
}

/// The node that a workload names.
fn node(
    spec: &LocalWorkloadSpec,
    trust_domain: &TrustDomain,
    scope: &mut Scope<'_>,
) -> Option<NodeName> {
    let text = spec.node_name.as_deref().filter(|text| !text.is_empty())?;
    let path = FieldPath::of("spec.nodeName");
    match NodeName::parse(text) {
        Ok(node) => {
            let id = SpiffeId::node(trust_domain.clone(), node.clone());
            check_length(&id, &path, scope);
            Some(node)
        }
        Err(error) => {
            scope.error(&path, error.to_string(), "write the node's name");
            None
        }
    }
}

fn check_identity(trust_domain: &TrustDomain, account: &ServiceAccountName, scope: &mut Scope<'_>) {
    let id = SpiffeId::workload(trust_domain.clone(), account.clone());
    check_length(&id, &FieldPath::of("spec.serviceAccountName"), scope);
}

/// Peers ask for an identity by a DNS name; an identity too long for one can never be proved.
fn check_length(id: &SpiffeId, at: &FieldPath, scope: &mut Scope<'_>) {
    if id.server_name().is_none() {
        scope.error(
            at,
            "its identity is too long for a TLS server name",
            "shorten the names: with the trust domain they may have about 250 characters",
        );
    }
}

fn ports(spec: &LocalWorkloadSpec, scope: &mut Scope<'_>) -> Vec<WorkloadPort> {
    let at = FieldPath::of("spec.ports");
    let written = scope.at_most(&at, &spec.ports, MAX_PORTS);
    let (mut names, mut numbers) = (BTreeSet::new(), BTreeSet::new());
    let mut ports = Vec::new();
    for (position, written) in written.iter().enumerate() {
        let at = at.index(position);
        let Some(port) = scope.check(&at.field("port"), check::port(written.port)) else {
            continue;
        };
        if !numbers.insert(port) {
            scope.error(
                &at.field("port"),
                format!("port {port} is written twice"),
                "remove one",
            );
        }
        if let Some(name) = &written.name {
            if !heddle_model::is_dns_label(name) {
                let remedy = "use a-z, 0-9 and '-'";
                scope.error(
                    &at.field("name"),
                    format!("{name:?} is no port name"),
                    remedy,
                );
            } else if !names.insert(name) {
                scope.error(
                    &at.field("name"),
                    format!("{name:?} is written twice"),
                    "rename one",
                );
            }
        }
        ports.push(WorkloadPort {
            name: written.name.clone(),
            port,
        });
    }
    ports
}

fn weight(spec: &LocalWorkloadSpec, scope: &mut Scope<'_>) -> u32 {
    let weight = spec.weight.unwrap_or(1);
    match u32::try_from(weight) {
        Ok(valid) if (1..=MAX_WEIGHT).contains(&weight) => valid,
        _ => {
            let out = match scope.written.origin.is_registry() {
                true => "stop its registrar",
                false => "remove its label",
            };
            let remedy = format!("use 1 to {MAX_WEIGHT}; to take it out, {out}");
            scope.error(
                &FieldPath::of("spec.weight"),
                format!("{weight} is no weight"),
                remedy,
            );
            1
        }
    }
}

/// The folder of an object's file.
fn folder_of(object: &Object, base: &Path) -> PathBuf {
    let folder = object.written.origin.path().and_then(Path::parent);
    let folder = folder.unwrap_or(base);
    std::path::absolute(folder).unwrap_or_else(|_| folder.to_path_buf())
}

fn command(spec: &LocalWorkloadSpec, folder: &Path, scope: &mut Scope<'_>) -> Option<Command> {
    let at = FieldPath::of("spec");
    let Some(program) = spec.command.first() else {
        for (field, there) in [
            ("args", !spec.args.is_empty()),
            ("env", !spec.env.is_empty()),
            ("workingDir", spec.working_dir.is_some()),
        ] {
            if there {
                scope.error(
                    &at.field(field),
                    "this needs a command",
                    "add command, or remove it",
                );
            }
        }
        return None;
    };
    if program.is_empty() {
        scope.error(
            &at.field("command").index(0),
            "the program is empty",
            "name a program",
        );
    }
    let words = spec
        .command
        .iter()
        .enumerate()
        .map(|(i, word)| (at.field("command").index(i), word));
    let args = spec
        .args
        .iter()
        .enumerate()
        .map(|(i, word)| (at.field("args").index(i), word));
    for (path, word) in words.chain(args) {
        if word.contains('\0') {
            scope.error(&path, "an argument cannot hold a NUL", "remove it");
        }
    }
    let working_dir = folder.join(spec.working_dir.as_deref().unwrap_or(""));
    if spec.working_dir.is_some() && !working_dir.is_dir() {
        scope.warn(
            &at.field("workingDir"),
            format!(
                "there is no folder {}: the command cannot start",
                working_dir.display()
            ),
            "make it, or write it relative to the manifest's folder",
        );
    }
    if program.contains(char::is_whitespace) && !exists(program, &working_dir) {
        scope.warn(
            &at.field("command").index(0),
            format!("there is no program {program:?}: the command cannot start"),
            "put each argument into its own item: no shell splits them",
        );
    }
    let mut argv: Vec<String> = spec.command.iter().chain(&spec.args).cloned().collect();
    // A relative path to a program starts from the workload's folder, not from the current folder of `heddle`; a bare
    // name is looked up in PATH.
    if let Some(first) = argv.first_mut()
        && first.contains('/')
        && let Some(path) = working_dir.join(&*first).to_str()
    {
        *first = path.to_owned();
    }
    Some(Command {
        argv,
        env: environment(spec, scope),
        working_dir: Some(working_dir),
    })
}

/// Whether a program is found in the way in which it will be started.
fn exists(program: &str, working_dir: &Path) -> bool {
    if program.contains('/') {
        return working_dir.join(program).exists();
    }
    let path = std::env::var_os("PATH").unwrap_or_default();
    std::env::split_paths(&path).any(|folder| folder.join(program).exists())
}

fn environment(spec: &LocalWorkloadSpec, scope: &mut Scope<'_>) -> BTreeMap<String, String> {
    let mut env = BTreeMap::new();
    for (position, variable) in spec.env.iter().enumerate() {
        let at = FieldPath::of("spec.env").index(position);
        let name = &variable.name;
        if name.is_empty() || name.contains(['=', '\0']) {
            let remedy = "use letters, digits and '_'";
            scope.error(
                &at.field("name"),
                format!("{name:?} names no variable"),
                remedy,
            );
        } else if variable.value.contains('\0') {
            scope.error(
                &at.field("value"),
                "a variable cannot hold a NUL",
                "remove it",
            );
        } else if env.insert(name.clone(), variable.value.clone()).is_some() {
            scope.error(
                &at.field("name"),
                format!("{name} is written twice"),
                "remove one",
            );
        }
    }
    env
}
