//! `heddle-lab demo`: a small bookstore on two nodes of this machine, with real traffic between them.
//!
//! The story is told in order: start the mesh, send a shopper through it, and while the shopper goes on
//! change a route, keep an intruder out, and replace the root; then judge. It fails when any page failed or
//! anything was not as promised, so that it is a test as well.

mod acts;
mod answers;
mod caller;
mod manifests;
mod mesh;
mod metrics;
mod place;
mod process;
mod program;
mod screen;
mod shopper;
mod stage;
mod stranger;
mod verdict;

use std::path::PathBuf;
use std::time::Duration;

use anyhow::Context;
use clap::Args;
use tokio::signal::unix::{SignalKind, signal};

use manifests::Manifests;
use mesh::{Mesh, NODES};
use place::Place;
use shopper::Shopper;
use stage::Stage;
use verdict::Verdict;

/// The workload that calls the bookstore, on the first node.
const SHOPPER: &str = "bookstore/shopper";
/// The Service that the shopper calls.
const FRONT: &str = "bookstore/productpage";

/// Show a small bookstore mesh of two nodes on this machine, with real traffic.
#[derive(Args)]
pub(crate) struct Options {
    /// Go on until Ctrl-C, and say how to look around
    #[arg(long)]
    stay: bool,
    /// Seconds to send traffic, 10 to 86400
    #[arg(long, default_value_t = 60, value_parser = clap::value_parser!(u64).range(10..=86_400))]
    seconds: u64,
    /// Pages that the shopper opens per second, 10 to 2000
    #[arg(long, default_value_t = 50, value_parser = clap::value_parser!(u32).range(10..=2_000))]
    rate: u32,
    /// The heddle program
    #[arg(long, value_name = "PATH", default_value = "heddle")]
    heddle: PathBuf,
}

/// Tells the story.
///
/// # Errors
/// Another demo runs, the mesh does not start, a page failed, or something was not as promised.
pub(crate) fn run(options: &Options) -> anyhow::Result<()> {
    tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .context("cannot start the runtime")?
        .block_on(tell(options))
}

async fn tell(options: &Options) -> anyhow::Result<()> {
    let _place = Place::take(&manifests::addresses())?;
    let manifests = Manifests::write()?;
    let mut mesh = Mesh::start(&options.heddle, manifests.dir(), manifests.scratch())?;
    let mut interrupt = signal(SignalKind::interrupt())?;
    let mut terminate = signal(SignalKind::terminate())?;
    let outcome = tokio::select! {
        outcome = scenes(options, &manifests, &mut mesh) => outcome.map(Some),
        _ = interrupt.recv() => Ok(None),
        _ = terminate.recv() => Ok(None),
    };
    if outcome.is_err() {
        // What the mesh said last is the best hint.
        eprintln!("{}", mesh.last_words());
    }
    let stopped = mesh.stop().await;
    if let Some(verdict) = outcome? {
        verdict.result()?;
    }
    stopped
}

/// Everything that happens while the mesh is up.
async fn scenes(
    options: &Options,
    manifests: &Manifests,
    mesh: &mut Mesh,
) -> anyhow::Result<Verdict> {
    mesh.join().await?;
    let status = mesh.status(NODES[0]).await?;
    let page = format!(
        "http://{}/products/1",
        status.address(Some(SHOPPER), FRONT)?
    );
    shopper::first_page(&page)
        .await
        .context("the bookstore does not answer")?;
    introduce(mesh, manifests).await?;

    let shopper = Shopper::start(&page, options.rate);
    let mut stage = Stage::open(mesh, shopper).await?;
    let length = Duration::from_secs(options.seconds);
    let phases = acts::share(&mut stage, manifests, length / 2).await?;
    let guarded = acts::guard(&mut stage, manifests, length / 4).await?;
    let rotated = acts::rotate(&mut stage, manifests, length / 4).await?;

    let failed = stage.failed().await?;
    let verdict = Verdict::new(stage.shopper.tally(), failed, phases, guarded, rotated);
    stage.screen.say(&verdict.to_string());
    if options.stay {
        // Nobody stays with what is not as promised.
        verdict.result()?;
        stage.screen.say(
            "staying until Ctrl-C; in two and a half minutes every certificate is renewed by the new \
             root, and in six the old one is dropped",
        );
        let invitation = invitation(stage.mesh).await?;
        stage.screen.quote(&invitation);
        stage.play(Duration::MAX).await?;
    }
    Ok(verdict)
}

/// Says what runs where, and who is who.
async fn introduce(mesh: &Mesh, manifests: &Manifests) -> anyhow::Result<()> {
    println!(
        "The bookstore is up: a control plane and two nodes, from the manifests in {}",
        manifests.dir().display()
    );
    println!("  {:<7} {:<16} WORKLOADS", "NODE", "FOR OTHER NODES");
    for node in mesh.nodes() {
        let address = mesh.check(node.name).await?.mesh_address;
        let address = address.map_or("-".to_owned(), |address| address.to_string());
        let names = node.workloads.iter().map(|name| screen::short(name));
        let names: Vec<&str> = names.collect();
        println!("  {:<7} {address:<16} {}", node.name, names.join(", "));
    }
    println!("Each node joined with a token of its own. What heddle check says of them:");
    for line in acts::identities(mesh).await?.lines() {
        println!("  {line}");
    }
    println!();
    Ok(())
}

/// What to try from another terminal.
async fn invitation(mesh: &Mesh) -> anyhow::Result<String> {
    let status = mesh.status(NODES[0]).await?;
    let anybody = status.address(None, FRONT)?;
    let mut all = vec![
        "Try from another terminal:".to_owned(),
        format!("  curl http://{anybody}/products/1"),
    ];
    for (caller, what) in [
        (SHOPPER, "-H 'end-user: editor' http://reviews/reviews/1"),
        (acts::INTRUDER, "-i http://details/details/1"),
        (acts::READER, "-i http://reviews/reviews/1"),
    ] {
        if let Some(proxy) = status.forward_proxy(caller) {
            all.push(format!("  http_proxy=http://{proxy} curl {what}"));
        }
    }
    for node in mesh.nodes() {
        all.push(format!("  {}", mesh.heddle.typed("check", &node.socket)));
    }
    let control = &mesh.control_socket;
    let first = &mesh.node(NODES[0])?.socket;
    all.push(format!("  {}", mesh.heddle.typed("status", first)));
    for command in [
        "status",
        "root status",
        "root rotate",
        "deny add spiffe://cluster.local/ns/bookstore/sa/reader --reason trying --life 5m",
    ] {
        all.push(format!("  {}", mesh.heddle.typed(command, control)));
    }
    Ok(all.join("\n"))
}
