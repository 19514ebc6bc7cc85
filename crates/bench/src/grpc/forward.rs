//! `heddle-lab grpc-forward`: a proxy made of the crate `h2`, on one thread.
//!
//! Every connection of a client is a task that reads its frames; every call is a task of its own, which passes on both
//! directions. All calls share one connection to the upstream. Frames that calls write at about the same time go out
//! together, because the task of a connection runs after the tasks that have woken it.

use std::net::SocketAddr;
use std::path::PathBuf;

use anyhow::Context;
use bytes::Bytes;
use clap::Args;
use h2::client::SendRequest;
use serde::Deserialize;
use tokio::net::{TcpListener, TcpStream};

use super::{called, calling, exchange};
use crate::listen::listen;

/// Options of `heddle-lab grpc-forward`.
#[derive(Args)]
pub struct GrpcForward {
    /// Where to listen, and where to send.
    #[arg(long, value_name = "FILE")]
    config: PathBuf,
}

/// The contents of the configuration file.
#[derive(Debug, Deserialize, PartialEq, Eq)]
#[serde(deny_unknown_fields)]
pub(super) struct Forwarding {
    pub(super) listen: SocketAddr,
    pub(super) upstream: SocketAddr,
}

/// Forwards until the process is stopped.
///
/// # Errors
/// When the configuration is wrong, the proxy cannot listen, or the upstream cannot be reached or closes its
/// connection.
pub fn run(options: &GrpcForward) -> anyhow::Result<()> {
    let text = std::fs::read_to_string(&options.config)
        .with_context(|| format!("cannot read {}", options.config.display()))?;
    let forwarding: Forwarding = serde_saphyr::from_str(&text)?;
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()?;
    runtime.block_on(async {
        let listener = TcpListener::from_std(listen(forwarding.listen)?)?;
        serve(listener, forwarding.upstream).await
    })
}

/// Forwards the calls of all clients that connect, until the upstream closes its connection.
///
/// # Errors
/// When the connection to the upstream ends, or no connection can be accepted.
pub(super) async fn serve(listener: TcpListener, upstream: SocketAddr) -> anyhow::Result<()> {
    let stream = TcpStream::connect(upstream)
        .await
        .with_context(|| format!("cannot connect to {upstream}"))?;
    stream.set_nodelay(true)?;
    let (calls, connection) = calling().handshake(stream).await?;
    let mut upstream = tokio::spawn(connection);
    loop {
        let accepted = tokio::select! {
            accepted = listener.accept() => accepted,
            ended = &mut upstream => {
                ended??;
                anyhow::bail!("the upstream has gone");
            }
        };
        let (stream, _) = accepted?;
        stream.set_nodelay(true)?;
        let calls = calls.clone();
        tokio::spawn(async move {
            if let Err(error) = connection_of_client(stream, &calls).await {
                eprintln!("a connection of a client broke: {error}");
            }
        });
    }
}

async fn connection_of_client(
    stream: TcpStream,
    upstream: &SendRequest<Bytes>,
) -> Result<(), h2::Error> {
    let mut connection = called().handshake(stream).await?;
    while let Some(call) = connection.accept().await {
        let (call, respond) = call?;
        tokio::spawn(exchange::forward(call, respond, upstream.clone()));
    }
    Ok(())
}
