//! Experiments that compare Heddle with other proxies.
//!
//! `proxy`, `mtls`, `grpc`, `link`, `identities`, `discovery`, `lazy`, `control_scale`, `elastic`, `between`, `concurrency` and `node`
//! are the experiments, `results` runs them all and records the results; the other modules are their instruments. The load
//! generator, the upstream and the confinement of every process are processes of this same program.

use clap::Subcommand;

pub use bursts::{Bursts, run as burst};
pub use concurrency::{Consumer, consume};
pub use confine::{Confine, run as become_confined};
pub use downloads::{Downloads, run as download};
pub use grpc::{GrpcForward, GrpcLoad, answer_calls, forward_calls, offer_calls};
pub use handshakes::{Handshakes, run as shake_hands};
pub use load::{Load, run as offer_load};
pub use persist::{Persist, run as persist};
pub use provider::{Provider, run as serve_provider};
pub use upstream::{Upstream, run as serve_upstream};

mod account;
mod ask;
mod authority;
mod between;
mod bursts;
mod cgroup;
mod child;
mod concurrency;
mod confine;
mod control_scale;
mod cost;
mod discovery;
mod downloads;
mod elastic;
mod etcd;
mod findings;
mod fixed_rate;
mod grpc;
mod handshakes;
mod http;
mod identities;
mod install;
mod instructions;
mod lazy;
mod link;
mod listen;
mod load;
mod machine;
mod meter;
mod mtls;
mod node;
mod nodes;
mod persist;
mod plot;
mod provider;
mod proxy;
mod report;
mod results;
mod runner;
mod sheet;
mod stage;
mod statistics;
mod syscalls;
mod systems;
mod table;
mod upstream;
mod wire;
mod work;

/// The experiments.
#[derive(Subcommand)]
pub enum BenchCommand {
    /// One proxy of each kind, the same work, the same machine, interleaved.
    Proxy(proxy::Proxy),
    /// The cost of a request and of an idle proxy, compared with a record.
    Cost(cost::CostOptions),
    /// Two nodes of each kind with mutual TLS and a policy between them, likewise.
    Mtls(mtls::MutualTls),
    /// Unary calls of gRPC through a proxy made of the crate h2 alone, likewise.
    Grpc(grpc::Grpc),
    /// The traffic between two nodes: bytes, CPU and latency of several protocols, likewise.
    Link(link::Link),
    /// The cost of identities: memory of many, and many handshakes at once.
    Identities(identities::Identities),
    /// A node that knows only what it uses: its memory, the first request to a service, and a scan beside it.
    Discovery(discovery::Discovery),
    /// Envoys that know only what their workloads use, beside Envoys that know the whole mesh.
    Lazy(lazy::Lazy),
    /// A control plane of meshes of up to 100,000 pods: how soon, and with how many bytes, nodes hear of a change.
    ControlScale(control_scale::ControlScale),
    /// Workers that come and go with the load, and connections that move.
    Elastic(elastic::Elastic),
    /// A second worker of a node that other nodes call: links compared with HTTP/1.1 connections.
    ElasticBetweenNodes(between::Between),
    /// Many requests at once, and providers of unequal size, compared with Envoy.
    Concurrency(concurrency::Concurrency),
    /// Memory of all proxies of a node as its pods become more: one proxy for all, compared with one for each.
    NodeMemory(node::NodeBenchOptions),
    /// CPU of all proxies of a node as requests become more, likewise.
    NodeCpu(node::NodeBenchOptions),
    /// Throughput of an application within the CPU quota of its pod, likewise.
    NodeQps(node::NodeBenchOptions),
    /// Latency of a request as connections become more, on one node and between two, likewise.
    NodeLatency(node::NodeBenchOptions),
    /// A node's proxy is killed under load, 20 times: how soon the next one answers, and which requests are lost.
    Crash(node::NodeBenchOptions),
    /// A web service beside batch work that takes every processor, with and without node QoS.
    QosCpu(node::NodeBenchOptions),
    /// A pod whose bursts go beyond its CPU limit, likewise.
    QosBurst(node::NodeBenchOptions),
    /// Downloads beside batch work that takes memory, likewise.
    QosMemory(node::NodeBenchOptions),
    /// An offline pod that floods through the proxy that it shares with an online pod, likewise.
    QosProxy(node::NodeBenchOptions),
    /// An online and an offline pod that share a link, likewise.
    QosNetwork(node::NodeBenchOptions),
    /// CPU, memory and writes of the agent of node QoS itself, on a node of 100 pods.
    QosAgent(node::NodeBenchOptions),
    /// Run all of these in full, except those on record; write docs/results and the pages that quote the figures.
    Results(results::ResultsOptions),
}

/// Runs one experiment to its report.
///
/// # Errors
/// When something it needs is missing or does not start.
pub fn run(command: &BenchCommand) -> anyhow::Result<()> {
    match command {
        BenchCommand::Proxy(options) => proxy::run(options),
        BenchCommand::Cost(options) => cost::run(options),
        BenchCommand::Mtls(options) => mtls::run(options),
        BenchCommand::Grpc(options) => grpc::run(options),
        BenchCommand::Link(options) => link::run(options),
        BenchCommand::Identities(options) => identities::run(options),
        BenchCommand::Discovery(options) => discovery::run(options),
        BenchCommand::Lazy(options) => lazy::run(options),
        BenchCommand::ControlScale(options) => control_scale::run(options),
        BenchCommand::Elastic(options) => elastic::run(options),
        BenchCommand::ElasticBetweenNodes(options) => between::run(options),
        BenchCommand::Concurrency(options) => concurrency::run(options),
        BenchCommand::NodeMemory(options) => node::memory(options),
        BenchCommand::NodeCpu(options) => node::cpu(options),
        BenchCommand::NodeQps(options) => node::qps(options),
        BenchCommand::NodeLatency(options) => node::latency(options),
        BenchCommand::Crash(options) => node::crash(options),
        BenchCommand::QosCpu(options) => node::qos_cpu(options),
        BenchCommand::QosBurst(options) => node::qos_burst(options),
        BenchCommand::QosMemory(options) => node::qos_memory(options),
        BenchCommand::QosProxy(options) => node::qos_proxy(options),
        BenchCommand::QosNetwork(options) => node::qos_network(options),
        BenchCommand::QosAgent(options) => node::qos_agent(options),
        BenchCommand::Results(options) => results::run(options),
    }
}
