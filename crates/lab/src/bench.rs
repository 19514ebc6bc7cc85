//! Experiments that measure Heddle beside other proxies.
//!
//! `proxy` is the experiment; the rest are its instruments. The load generator, the upstream and the
//! confinement of every process are processes of this same program.

use clap::Subcommand;

pub(crate) use confine::{Confine, run as become_confined};
pub(crate) use load::{Load, run as offer_load};
pub(crate) use upstream::{Upstream, run as serve_upstream};

mod account;
mod ask;
mod authority;
mod cgroup;
mod child;
mod confine;
mod elastic;
mod http;
mod install;
mod instructions;
mod load;
mod machine;
mod mtls;
mod nodes;
mod plot;
mod proxy;
mod report;
mod statistics;
mod syscalls;
mod systems;
mod table;
mod upstream;
mod wire;

/// The experiments.
#[derive(Subcommand)]
pub(crate) enum Command {
    /// One proxy of each kind, the same work, the same machine, interleaved.
    Proxy(proxy::Proxy),
    /// Two nodes of each kind with mutual TLS and a policy between them, likewise.
    Mtls(mtls::MutualTls),
    /// Workers that come and go with the load, and connections that move.
    Elastic(elastic::Elastic),
}

/// Runs one experiment to its report.
///
/// # Errors
/// When something it needs is missing or does not start.
pub(crate) fn run(command: &Command) -> anyhow::Result<()> {
    match command {
        Command::Proxy(options) => proxy::run(options),
        Command::Mtls(options) => mtls::run(options),
        Command::Elastic(options) => elastic::run(options),
    }
}
