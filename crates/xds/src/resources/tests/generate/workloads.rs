//! Random workloads.

use std::collections::BTreeMap;

use heddle_model::{
    Class, Command, ControlGroup, Mode, PolicyName, Probe, Proxy, Qos, ServiceAccountName,
    Workload, WorkloadPort,
};
use proptest::collection::{btree_map, btree_set, vec};
use proptest::option;
use proptest::prelude::*;

use super::policies::policy_kind;
use super::{ip, label, name, node_name, number, path, port, text, weight, workload_name};

pub(in crate::resources::tests) fn workload() -> BoxedStrategy<Workload> {
    let names = (workload_name(), name(), option::of(node_name()));
    let addresses = (ip(), btree_set(ip(), 0..3));
    let ports = vec((option::of(label()), port()), 0..3);
    let policies = btree_set((name(), policy_kind()), 0..3);
    let guard = (any::<bool>(), policies, btree_set(probe(), 0..3));
    let labels = btree_map(text(), text(), 0..3);
    let rest = (qos(), option::of(command()), option::of(any::<bool>()));
    (names, addresses, ports, guard, labels, weight(), rest)
        .prop_map(
            |(names, addresses, ports, guard, labels, weight, (qos, command, envoy))| {
                let (name, account, node) = names;
                let (address, mut more) = addresses;
                let (is_strict, policies, probes) = guard;
                more.remove(&address);
                let policy = |(policy, kind)| PolicyName {
                    namespace: name.namespace.clone(),
                    name: policy,
                    kind,
                };
                Workload {
                    labels: labels.into(),
                    service_account: ServiceAccountName {
                        namespace: name.namespace.clone(),
                        name: account,
                    },
                    address,
                    uses: Vec::new(),
                    more_addresses: more.into_iter().collect(),
                    ports: ports
                        .into_iter()
                        .map(|(name, port)| WorkloadPort { name, port })
                        .collect(),
                    weight,
                    node,
                    mode: if is_strict {
                        Mode::Strict
                    } else {
                        Mode::Permissive
                    },
                    policies: policies.into_iter().map(policy).collect(),
                    probes: probes.into_iter().collect(),
                    qos,
                    proxy: envoy.map_or(Proxy::Node, |lazy| Proxy::Envoy { lazy }),
                    command,
                    name,
                }
            },
        )
        .boxed()
}

fn probe() -> BoxedStrategy<Probe> {
    (port(), option::of((path(), "[!-\"$-~]{0,5}")))
        .prop_map(|(port, request)| {
            let (path, query) =
                request.map_or((None, String::new()), |(path, query)| (Some(path), query));
            Probe { port, path, query }
        })
        .boxed()
}

fn qos() -> BoxedStrategy<Qos> {
    let limits = (
        option::of(number(0..=u64::MAX)),
        option::of(number(0..=u64::MAX)),
    );
    let group = option::of(vec("[a-z.]{0,3}[a-z]", 1..3));
    (any::<bool>(), any::<bool>(), limits, group)
        .prop_map(|(offline, turbo, limits, group)| Qos {
            class: if offline {
                Class::Offline
            } else {
                Class::Online
            },
            quota_turbo: turbo,
            quota_burst_us: limits.0,
            latency_p99_ms: limits.1,
            cgroup: group.map(|parts| ControlGroup::new(&parts.join("/")).unwrap()),
        })
        .boxed()
}

fn command() -> BoxedStrategy<Command> {
    let env: BTreeMap<String, String> = BTreeMap::new();
    let env = prop_oneof![Just(env), btree_map("[^=\0]{1,4}", text(), 0..3)];
    let dir = option::of("/[a-z]{0,4}".prop_map(Into::into));
    ("[^\0]{1,4}", vec(text(), 0..3), env, dir)
        .prop_map(|(program, arguments, env, working_dir)| {
            let mut argv = vec![program];
            argv.extend(arguments);
            Command {
                argv,
                env,
                working_dir,
            }
        })
        .boxed()
}
