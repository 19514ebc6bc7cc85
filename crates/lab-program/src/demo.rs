//! `heddle-lab demo`: a small bookstore on two nodes of this machine, with real traffic between them.
//!
//! The acts run in order: start the mesh and a shopper that requests pages all the time; meanwhile change a route,
//! refuse an intruder, replace the root, and kill a proxy; then judge. The demo fails if a page failed before the
//! kill or an act had another outcome than it should, so it is a test too.
//!
//! With root, workloads run in pods, and their programs know nothing of the mesh. Without root, each service has a
//! loopback address, and no proxy is killed, since nothing would restart it.

mod acts;
mod answers;
mod asker;
mod caller;
mod manifests;
mod mesh;
mod metrics;
mod page;
mod place;
mod process;
mod program;
mod screen;
mod shopper;
mod stage;
mod stranger;
mod verdict;

use std::env;
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context, bail};
use clap::{Args, ValueEnum};
use tokio::signal::unix::{Signal, SignalKind, signal};
use tokio::task;

pub(crate) use asker::{Ask, run as ask};
use heddle_lab::lab;
use manifests::ManifestFolder;
use mesh::{Ground, Loopback, Mesh, NODES, Pods};
use place::DemoLock;
use program::Program;
use shopper::Shopper;
use stage::DemoStage;
use verdict::Verdict;

/// The workload that calls the bookstore, on the first node.
const SHOPPER: &str = "bookstore/shopper";
/// The Service that the shopper calls.
const FRONT: &str = "bookstore/productpage";

#[derive(Clone, Copy, Debug, PartialEq, ValueEnum)]
enum Where {
    /// In pods if possible, else on loopback
    Auto,
    /// In pods: network namespaces on two nodes. Needs root
    Pods,
    /// At loopback addresses of this machine
    Loopback,
}

/// Show a small bookstore mesh of two nodes on this machine, with real traffic.
#[derive(Args)]
pub(crate) struct DemoOptions {
    /// Keep running until Ctrl-C, and print commands to try
    #[arg(long)]
    stay: bool,
    /// Seconds to send traffic, 10 to 86400
    #[arg(long, default_value_t = 60, value_parser = clap::value_parser!(u64).range(10..=86_400))]
    seconds: u64,
    /// Pages that the shopper opens per second, 10 to 2000
    #[arg(long, default_value_t = 50, value_parser = clap::value_parser!(u32).range(10..=2_000))]
    rate: u32,
    /// Where the services run
    #[arg(long = "in", value_name = "WHERE", value_enum, default_value_t = Where::Auto)]
    place: Where,
    /// The heddle program
    #[arg(long, value_name = "PATH", default_value = "heddle")]
    heddle: PathBuf,
}

/// Runs the demo.
///
/// # Errors
/// Another demo runs, the mesh does not start, a page failed, or an act had the wrong outcome.
pub(crate) fn run(options: &DemoOptions) -> anyhow::Result<()> {
    tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .context("cannot start the runtime")?
        .block_on(tell(options))
}

async fn tell(options: &DemoOptions) -> anyhow::Result<()> {
    let heddle = Program::find(&options.heddle)?;
    let mut signals = Signals::new()?;
    let in_pods = in_pods(options.place, &heddle)?;
    let _lock = DemoLock::take(&match in_pods {
        true => Vec::new(),
        false => manifests::addresses(),
    })?;
    let (mut manifests, ground);
    if in_pods {
        manifests = ManifestFolder::write_for_pods()?;
        let Some(pods) = bring_up(&heddle, manifests.dir(), &mut signals).await? else {
            return Ok(());
        };
        manifests.move_to(pods.manifests())?;
        ground = Ground::Pods(pods);
    } else {
        manifests = ManifestFolder::write()?;
        let processes = Loopback::start(&heddle, manifests.dir(), manifests.scratch())?;
        ground = Ground::Loopback(processes);
    }
    let mut mesh = Mesh::on(ground, heddle);
    let outcome = tokio::select! {
        biased;
        () = signals.any() => Ok(None),
        outcome = scenes(options, &manifests, &mut mesh) => outcome.map(Some),
    };
    if outcome.is_err() {
        // The ends of the logs are the best hint.
        eprintln!("{}", mesh.last_words());
    }
    let stopped = mesh.stop().await;
    if let Some(verdict) = outcome? {
        verdict.result()?;
        println!(
            "Everything is stopped and removed. With --stay (make demo ARGS=--stay) it keeps running, with commands to try; \
             docs/quickstart.md runs services of your own."
        );
    }
    stopped
}

/// Whether the bookstore runs in pods; prints the choice and why.
///
/// # Errors Pods were requested but are not possible.
fn in_pods(place: Where, heddle: &Program) -> anyhow::Result<bool> {
    const INSTEAD: &str = "Using a loopback address for each service, without root";
    if place == Where::Loopback {
        println!("{INSTEAD}; --in pods is transparent, and needs root.");
        return Ok(false);
    }
    if place == Where::Auto && !rustix::process::geteuid().is_root() {
        let command = typed_as_root()?;
        println!("{INSTEAD}. To run transparently in pods: {command}");
        return Ok(false);
    }
    match lab::is_possible().and_then(|()| intercepts(heddle)) {
        Ok(()) => {
            println!(
                "In pods: network namespaces on two nodes, whose programs know nothing of the mesh (--in loopback \
                 needs no root)."
            );
            Ok(true)
        }
        Err(why) if place == Where::Pods => Err(why),
        Err(why) => {
            println!("{INSTEAD}, since pods are not possible here: {why:#}.");
            Ok(false)
        }
    }
}

/// The command that runs the demo in pods. The bookstore's program is in the same folder as this one.
fn typed_as_root() -> anyhow::Result<String> {
    let own = env::current_exe().context("cannot find the running program")?;
    let folder = own.parent().unwrap_or(Path::new("/")).display();
    let command = format!("sudo env PATH=\"{folder}:$PATH\" heddle-lab demo");
    Ok(command)
}

/// # Errors
/// This machine offers no hooks.
fn intercepts(heddle: &Program) -> anyhow::Result<()> {
    let mut probe = std::process::Command::new(heddle.path());
    let said = probe.args(["check", "--probe"]).output()?;
    if !said.status.success() {
        bail!("this machine cannot intercept traffic (heddle check --probe says why)");
    }
    Ok(())
}

/// Brings up the lab, which takes seconds; a signal meanwhile takes it down again.
async fn bring_up(
    heddle: &Program,
    dir: &Path,
    signals: &mut Signals,
) -> anyhow::Result<Option<Pods>> {
    let (heddle, dir) = (heddle.clone(), dir.to_owned());
    let mut up = task::spawn_blocking(move || {
        let later = [acts::INTRUDER, acts::READER];
        Pods::up(&heddle, &dir, &later, &mut |what| println!("  {what}"))
    });
    tokio::select! {
        biased;
        () = signals.any() => {
            println!("stopping: the lab is completed first, then removed");
            // If bringing it up fails because of the same signal, it has already removed its parts.
            up.await?.map_or(Ok(()), Pods::stop)?;
            Ok(None)
        }
        pods = &mut up => pods?.map(Some),
    }
}

/// SIGINT and SIGTERM.
struct Signals {
    interrupt: Signal,
    terminate: Signal,
}

impl Signals {
    fn new() -> anyhow::Result<Self> {
        Ok(Self {
            interrupt: signal(SignalKind::interrupt())?,
            terminate: signal(SignalKind::terminate())?,
        })
    }

    async fn any(&mut self) {
        tokio::select! {
            _ = self.interrupt.recv() => {}
            _ = self.terminate.recv() => {}
        }
    }
}

/// All acts, while the mesh is up.
async fn scenes(
    options: &DemoOptions,
    manifests: &ManifestFolder,
    mesh: &mut Mesh,
) -> anyhow::Result<Verdict> {
    mesh.join().await?;
    let page = mesh.url(NODES[0], SHOPPER, FRONT).await? + "/products/1";
    shopper::first_page(&page, || mesh.program_of(SHOPPER))
        .await
        .context("the bookstore does not answer")?;
    introduce(mesh, manifests).await?;
    acts::unaware(mesh).await?;

    let shopper = Shopper::start(mesh.program_of(SHOPPER)?, &page, options.rate)?;
    let mut stage = DemoStage::open(mesh, shopper).await?;
    let length = Duration::from_secs(options.seconds);
    let phases = acts::share(&mut stage, manifests, length / 2).await?;
    let guarded = acts::guard(&mut stage, manifests, length / 4).await?;
    let rotated = acts::rotate(&mut stage, manifests, length / 4).await?;

    // From here on pages may fail, and the killed proxy's counters are lost.
    let failed = stage.failed().await?;
    let seen = stage.shopper.tally();
    let killed = acts::kill(&mut stage).await?;
    let verdict = Verdict::new(seen, failed, phases, guarded, rotated, killed);
    stage.screen.say(&verdict.to_string());
    if options.stay {
        // A failed demo ends at once in spite of `--stay`.
        verdict.result()?;
        stage.screen.say(
            "running until Ctrl-C; in two and a half minutes the new root has renewed every certificate, \
             and in six the old root is dropped",
        );
        let invitation = invitation(stage.mesh).await?;
        stage.screen.quote(&invitation);
        stage.play(Duration::MAX).await?;
    }
    Ok(verdict)
}

/// Prints the nodes, their workloads and identities.
async fn introduce(mesh: &Mesh, manifests: &ManifestFolder) -> anyhow::Result<()> {
    println!(
        "The bookstore is up: a control plane and two nodes, from the manifests in {}",
        manifests.dir().display()
    );
    println!("  {:<7} {:<16} WORKLOADS", "NODE", "MESH ADDRESS");
    for node in mesh.nodes() {
        let address = mesh.check(node.name).await?.mesh_address;
        let address = address.map_or("-".to_owned(), |address| address.to_string());
        let names = node.workloads.iter().map(|name| screen::short(name));
        let names: Vec<&str> = names.collect();
        println!("  {:<7} {address:<16} {}", node.name, names.join(", "));
    }
    println!(
        "Each node joined with its own token. Their certificates, from heddle check, which live for five minutes and are \
         renewed by themselves; ROOT is the one that signed:"
    );
    for line in acts::identities(mesh).await?.lines() {
        println!("  {line}");
    }
    println!();
    Ok(())
}

/// Commands to try from another terminal.
async fn invitation(mesh: &Mesh) -> anyhow::Result<String> {
    let mut all = vec!["Try from another terminal:".to_owned()];
    let tries = [
        (SHOPPER, "-H 'end-user: editor' http://reviews/reviews/1"),
        (acts::INTRUDER, "-i http://details/details/1"),
        (acts::READER, "-i http://reviews/reviews/1"),
    ];
    if mesh.pods().is_some() {
        for (caller, what) in tries {
            all.push(format!(
                "  {}",
                mesh::typed(caller, &format!("curl {what}"))
            ));
        }
    } else {
        let status = mesh.status(NODES[0]).await?;
        let for_all = status.address(None, FRONT)?;
        all.push(format!("  curl http://{for_all}/products/1"));
        for (caller, what) in tries {
            if let Some(proxy) = status.forward_proxy(caller) {
                all.push(format!("  http_proxy=http://{proxy} curl {what}"));
            }
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
        "deny add spiffe://cluster.local/ns/bookstore/sa/reader --reason trying --ttl 5m",
    ] {
        all.push(format!("  {}", mesh.heddle.typed(command, control)));
    }
    Ok(all.join("\n"))
}
