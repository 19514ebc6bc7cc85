//! A small bookstore of four services, for demonstrations.
//!
//! `productpage` asks `details` and `reviews` and puts both on one page; version 2 of `reviews` also asks `ratings`.
//! Each service takes the addresses of the others from environment variables, which Kubernetes sets in a pod
//! (`DETAILS_SERVICE_HOST`, `DETAILS_SERVICE_PORT`), and knows nothing of the mesh. One binary has every role, so that
//! there is one thing to build and to copy.

mod client;
mod details;
mod productpage;
mod ratings;
mod reviews;

use std::net::SocketAddr;
use std::process::ExitCode;

use anyhow::Context;
use axum::Router;
use clap::{Parser, Subcommand};
use tokio::net::TcpListener;
use tokio::signal::unix::{SignalKind, signal};

use client::Client;
use reviews::Version;

/// One service of a small bookstore.
#[derive(Parser)]
#[command(version)]
struct Arguments {
    #[command(subcommand)]
    role: Role,
    /// Where to listen
    #[arg(long, global = true, default_value = "127.0.0.1:9080")]
    listen: SocketAddr,
}

#[derive(Subcommand)]
enum Role {
    /// The page that a visitor sees; calls details and reviews
    Productpage,
    /// Who wrote a book, and when
    Details,
    /// What readers say; v2 calls ratings
    Reviews {
        /// v1: texts only; v2: with stars
        #[arg(long, value_enum)]
        version: Version,
    },
    /// How many stars readers give
    Ratings,
}

#[tokio::main(flavor = "current_thread")]
async fn main() -> ExitCode {
    match run(Arguments::parse()).await {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("bookstore: {error:#}");
            ExitCode::FAILURE
        }
    }
}

async fn run(arguments: Arguments) -> anyhow::Result<()> {
    let service = match arguments.role {
        Role::Productpage => productpage::router(productpage::Backends {
            details: Client::from_env("details")?,
            reviews: Client::from_env("reviews")?,
        }),
        Role::Details => details::router(),
        Role::Reviews {
            version: Version::V1,
        } => reviews::router(None),
        Role::Reviews {
            version: Version::V2,
        } => reviews::router(Some(Client::from_env("ratings")?)),
        Role::Ratings => ratings::router(),
    };
    serve(arguments.listen, service).await
}

/// Serves until the process gets a stop signal, then finishes the requests in progress.
async fn serve(address: SocketAddr, service: Router) -> anyhow::Result<()> {
    let listener = TcpListener::bind(address)
        .await
        .with_context(|| format!("cannot listen on {address}"))?;
    // Before it says that it listens: the reader of that line may stop it at once.
    let mut terminate = signal(SignalKind::terminate())?;
    println!("listening on {}", listener.local_addr()?);
    axum::serve(listener, service)
        .with_graceful_shutdown(async move {
            terminate.recv().await;
        })
        .await
        .context("serving failed")
}
