//! `heddle-lab bench grpc`: the cost of a unary gRPC call in a proxy that does nothing but forward it.
//!
//! ```text
//! load generator ── HTTP/2, 8 connections × 16 calls ──▶ the proxy ── HTTP/2, one connection ──▶ upstream
//! ```
//!
//! The proxy on our side is made of the crate `h2` and nothing else: no routing, no policy, no statistics. It is the
//! least that a proxy on that crate costs, compared with Envoy and HAProxy with as little to do. The rounds, the rates
//! and the report are those of `bench proxy`. `docs/benchmarks.md` explains every choice.
//!
//! | module | is |
//! |---|---|
//! | [`call`] | what a call looks like, to the three below |
//! | [`load`] | the load generator |
//! | [`forward`] | the proxy on the crate `h2`; [`exchange`] is one call in it |
//! | [`server`] | the upstream |

use clap::Args;

use super::install::Peers;
use super::proxy::Extent;
use super::systems::{ProxyKind, System, Traffic};

pub use forward::{GrpcForward, run as forward_calls};
pub use load::{GrpcLoad, run as offer_calls};
pub use server::run as answer_calls;

mod call;
mod exchange;
mod forward;
mod load;
mod server;

/// Flow control window of a stream, in bytes; the same at all ends.
const STREAM_WINDOW: u32 = 256 * 1024;
/// Flow control window of a connection, in bytes.
const CONNECTION_WINDOW: u32 = 1024 * 1024;
/// Limit of concurrent streams of a connection, which is never reached.
const MAX_STREAMS: u32 = 1024;
/// Send buffer of a stream, in bytes.
const SEND_BUFFER: usize = 64 * 1024;
/// Maximum size of a head as HTTP/2 counts it: 32 bytes more for each field (RFC 9113 section 6.5.2).
const MAX_HEADER_LIST: u32 = 128 * 1024;
/// Limit of the memory that small unread DATA frames may take on a connection, in bytes.
const SMALL_FRAMES: usize = 8 * 1024 * 1024;

/// HTTP/2 settings of the servers: the same as between Heddle's nodes.
fn called() -> h2::server::Builder {
    let mut builder = h2::server::Builder::new();
    builder
        .initial_window_size(STREAM_WINDOW)
        .initial_connection_window_size(CONNECTION_WINDOW)
        .max_concurrent_streams(MAX_STREAMS)
        // A load generator that ends resets all its calls at once, which is no attack.
        .max_pending_accept_reset_streams(MAX_STREAMS as usize)
        .max_send_buffer_size(SEND_BUFFER)
        .max_header_list_size(MAX_HEADER_LIST)
        .data_frame_budget(SMALL_FRAMES);
    builder
}

/// HTTP/2 settings of the clients, likewise.
fn calling() -> h2::client::Builder {
    let mut builder = h2::client::Builder::new();
    builder
        .initial_window_size(STREAM_WINDOW)
        .initial_connection_window_size(CONNECTION_WINDOW)
        .max_concurrent_streams(MAX_STREAMS)
        .max_send_buffer_size(SEND_BUFFER)
        .max_header_list_size(MAX_HEADER_LIST)
        .data_frame_budget(SMALL_FRAMES)
        .enable_push(false);
    builder
}

/// Options of `bench grpc`.
#[derive(Args, Clone)]
pub struct Grpc {
    #[command(flatten)]
    extent: Extent,
}

/// Measures and reports.
///
/// # Errors
/// When a peer or tool is missing, the machine is too small, a system does not start, or a file cannot be
/// written.
pub(super) fn run(options: &Grpc) -> anyhow::Result<()> {
    let (machine, systems) = options.extent.prepare(systems)?;
    options.extent.measure(Traffic::Grpc, machine, &systems)
}

fn systems(peers: &Peers) -> anyhow::Result<Vec<System>> {
    let lab = std::env::current_exe()?;
    let lock = include_str!("../../../Cargo.lock");
    let forwarder = System {
        version: locked_version(lock, "h2").unwrap_or("unknown").to_owned(),
        ..System::new("h2", ProxyKind::H2, &lab)?
    };
    Ok(vec![
        forwarder,
        System::new("envoy", ProxyKind::Envoy, &peers.envoy)?,
        System::new("haproxy", ProxyKind::Haproxy, &peers.haproxy)?,
    ])
}

/// The version of a crate that a lock file names.
fn locked_version<'text>(lock: &'text str, name: &str) -> Option<&'text str> {
    let (_, after) = lock.split_once(&format!("\nname = \"{name}\"\nversion = \""))?;
    after.split('"').next()
}

#[cfg(test)]
mod tests;
