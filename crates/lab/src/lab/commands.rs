//! `heddle-lab up`, `down`, `exec`, `list`, `status`.

use std::ffi::OsString;
use std::os::unix::process::CommandExt;
use std::path::PathBuf;
use std::process;
use std::sync::mpsc::sync_channel;
use std::thread;

use anyhow::{Context, bail};
use clap::{Args, Subcommand};
use tokio::runtime;
use tokio::signal::unix::{SignalKind, signal};

use super::output::print;
use super::programs::Programs;
use super::which::{Which, only};
use super::{
    Lab, LabName, Plan, apply, dns, keeper, labs, requirements, restart, settings, status,
};

/// Commands for labs.
#[derive(Subcommand)]
pub enum LabCommand {
    /// Bring up a lab: nodes and pods on this machine, as a file says
    ///
    /// Makes network namespaces, links between them, control groups and a DNS for each node, starts the mesh and the
    /// pods' programs, and returns when everything is ready. Needs root. docs/lab.md describes the file.
    #[command(after_help = "Examples:
  heddle-lab up examples/lab/bookstore.yaml
  heddle-lab exec bookstore/shopper -- curl http://productpage/products/1
  heddle-lab down")]
    Up(Up),
    /// Apply changed manifests to a lab that is up
    ///
    /// Reads the lab's file and its manifests again. New pods and Services are made, missing ones are removed, and
    /// programs whose command has changed are restarted. Everything else keeps its addresses. Edits of the copies in
    /// the lab's folder are overwritten.
    #[command(after_help = "Examples:
  heddle-lab apply examples/lab/bookstore.yaml
  heddle-lab apply examples/lab/bookstore.yaml --watch")]
    Apply(apply::ApplyOptions),
    /// Check the file of a lab and its manifests, as `heddle-lab up` does before it makes anything
    ///
    /// Needs no root, and makes nothing.
    Validate(Validate),
    /// Run a command in a pod, on a node, or between the nodes
    ///
    /// The command's PATH contains the lab's own heddle and heddle-lab. On a node, heddle talks to that node; between
    /// the nodes, to the control plane; in a pod that has a proxy of its own, to that proxy.
    #[command(after_help = "Examples:
  heddle-lab exec bookstore/shopper -- getent ahosts details
  heddle-lab exec --node one -- ip route
  heddle-lab exec --node one -- heddle status
  heddle-lab exec --underlay -- heddle status --control
  heddle-lab exec --underlay -- ping 10.1.1.1")]
    Exec(Exec),
    /// Take down a lab, even if only parts of it are left
    ///
    /// Ends the processes that it started, by their ids, and removes its namespaces, mounts, control groups
    /// and folder.
    Down(Down),
    /// Restart a node or the control plane of a lab
    ///
    /// Ends it, then waits until the lab has started it again (restart: always) and until it is ready and serves its
    /// pods.
    #[command(after_help = "Examples:
  heddle-lab restart one
  heddle-lab restart control --kill")]
    Restart(restart::RestartOptions),
    /// List the labs that are up
    List,
    /// Show the nodes, pods, Services and processes of a lab
    #[command(after_help = "Examples:
  heddle-lab status
  heddle-lab status --json | jq -r '.nodes[].processes[] | select(.state == \"ended\") | .what'")]
    Status(status::StatusOptions),
    /// Serves the DNS of a node.
    #[command(hide = true)]
    Dns(dns::DnsOptions),
    /// Restarts ended processes of a lab's mesh.
    #[command(hide = true)]
    Keep(keeper::KeepOptions),
}

/// Options of `heddle-lab up`.
#[derive(Args)]
pub struct Up {
    /// The file of the lab
    file: PathBuf,
    /// The heddle program [default: beside heddle-lab, else in PATH]
    #[arg(long, value_name = "PATH")]
    heddle: Option<PathBuf>,
    /// The Envoy that pods of their own Envoy run [default: in PATH]
    #[arg(long, value_name = "PATH")]
    envoy: Option<PathBuf>,
    /// When something fails, keep what was made for inspection; `heddle-lab down` removes it
    #[arg(long)]
    keep: bool,
}

/// Options of `heddle-lab validate`.
#[derive(Args)]
pub struct Validate {
    /// The file of the lab
    file: PathBuf,
    /// The heddle program, which checks settings [default: beside heddle-lab, else in PATH]
    #[arg(long, value_name = "PATH")]
    heddle: Option<PathBuf>,
}

/// Options of `heddle-lab down`.
#[derive(Args)]
pub struct Down {
    #[command(flatten)]
    which: Which,
    /// Set by an interrupted `heddle-lab up`, which becomes this command: it still exits with an error.
    #[arg(long, hide = true)]
    interrupted: bool,
}

/// Options of `heddle-lab exec`.
#[derive(Args)]
pub struct Exec {
    /// The lab [default: the only one that is up]
    #[arg(long, value_name = "NAME")]
    lab: Option<LabName>,
    /// The pod
    #[arg(value_name = "NAMESPACE/NAME", required_unless_present_any = ["node", "underlay"])]
    pod: Option<String>,
    /// Run it on this node, not in a pod
    #[arg(long, value_name = "NAME", conflicts_with_all = ["pod", "underlay"])]
    node: Option<String>,
    /// Run it between the nodes, outside the mesh
    #[arg(long, conflicts_with = "pod")]
    underlay: bool,
    /// The command
    #[arg(last = true, required = true, value_name = "CMD")]
    command: Vec<OsString>,
}

/// Runs a command of `heddle-lab`.
///
/// # Errors Those of the command.
pub fn run(command: &LabCommand) -> anyhow::Result<()> {
    match command {
        LabCommand::Up(options) => up(options),
        LabCommand::Apply(options) => apply::run(options),
        LabCommand::Validate(options) => validate(options),
        LabCommand::Exec(options) => exec(options),
        LabCommand::Down(options) => down(options),
        LabCommand::List => list(),
        LabCommand::Status(options) => {
            let name = only(options.which.lab.as_ref(), "NAME")?;
            status::show(&Lab::open(&name)?, options)
        }
        LabCommand::Restart(options) => restart::restart(options),
        LabCommand::Dns(options) => dns::serve(options),
        LabCommand::Keep(options) => keeper::keep(options),
    }
}

fn up(options: &Up) -> anyhow::Result<()> {
    let plan = Plan::read(&options.file)?;
    for warning in &plan.warnings {
        eprintln!("heddle-lab: {warning}");
    }
    let mut programs = Programs::find()?;
    let heddle = options.heddle.as_ref().map(std::path::absolute);
    programs.heddle = heddle.transpose()?.or(programs.heddle);
    let envoy = options.envoy.as_ref().map(std::path::absolute);
    programs.envoy = envoy.transpose()?.or(programs.envoy);
    programs.keep = options.keep;
    if !options.keep {
        go_down_when_interrupted(&plan.name, &programs)?;
    }
    let lab = Lab::up_with(&plan, &programs, &mut |what| eprintln!("  {what}"))?;
    let name = &plan.name;
    println!("the lab {name} is up, carried by: {}", plan.carried);
    println!("  logs and sockets: {}", lab.folder().display());
    if let Some(pod) = plan.pods.first() {
        println!("  heddle-lab exec --lab {name} {} -- sh", pod.workload);
    }
    println!("  heddle-lab status {name}; heddle-lab down {name}");
    lab.stay();
    Ok(())
}

fn validate(options: &Validate) -> anyhow::Result<()> {
    let plan = Plan::read(&options.file)?;
    for warning in &plan.warnings {
        println!("{warning}");
    }
    let heddle = options.heddle.clone().or(Programs::find()?.heddle);
    settings::check(&plan, heddle.as_deref())?;
    let (nodes, pods, services) = (plan.nodes.len(), plan.pods.len(), plan.services.len());
    println!(
        "valid: lab {} of {nodes} nodes, {pods} pods, {services} Services, {} warnings",
        plan.name,
        plan.warnings.len()
    );
    Ok(())
}

fn down(options: &Down) -> anyhow::Result<()> {
    let name = only(options.which.lab.as_ref(), "NAME")?;
    super::down(&name)?;
    if options.interrupted {
        bail!("interrupted: the unfinished lab {name} was removed");
    }
    println!("the lab {name} is down");
    Ok(())
}

/// From now on SIGINT or SIGTERM replaces this process with `heddle-lab down` (exec), which releases the lock and
/// every other descriptor.
fn go_down_when_interrupted(name: &LabName, programs: &Programs) -> anyhow::Result<()> {
    let (sent, heard) = sync_channel(1);
    let mut down = process::Command::new(&programs.lab);
    down.args(["down", "--interrupted", name.as_str()]);
    thread::Builder::new()
        .name("signals".to_owned())
        .spawn(move || {
            let runtime = runtime::Builder::new_current_thread().enable_io().build();
            let listening = runtime.and_then(|runtime| {
                let signals = {
                    let _entered = runtime.enter();
                    (
                        signal(SignalKind::interrupt())?,
                        signal(SignalKind::terminate())?,
                    )
                };
                Ok((runtime, signals))
            });
            let (runtime, (mut interrupt, mut terminate)) = match listening {
                Ok(listening) => listening,
                Err(error) => return drop(sent.send(Err(error))),
            };
            let _waits = sent.send(Ok(()));
            runtime.block_on(async {
                tokio::select! {
                    _ = interrupt.recv() => {}
                    _ = terminate.recv() => {}
                }
            });
            eprintln!("heddle-lab: interrupted");
            let error = down.exec();
            eprintln!("heddle-lab: cannot take the lab down: {error}");
            process::exit(1);
        })?;
    heard.recv()?.context("cannot listen for signals")
}

fn exec(options: &Exec) -> anyhow::Result<()> {
    let lab = Lab::open(&only(options.lab.as_ref(), "--lab NAME")?)?;
    let (program, arguments) = options.command.split_first().context("no command")?;
    let mut command = match (&options.pod, &options.node) {
        (Some(pod), _) => lab.pod(pod)?.command(program)?,
        (None, Some(node)) => lab.node(node)?.command(program)?,
        (None, None) => lab.underlay(program)?,
    };
    let failed = command.args(arguments).exec();
    Err(failed).with_context(|| format!("cannot run {}", program.display()))
}

fn list() -> anyhow::Result<()> {
    let may_look = requirements::check_rights().is_ok();
    for name in labs() {
        if !may_look {
            print(&format!(
                "{name}: only root can see its state (sudo heddle-lab list)\n"
            ))?;
            continue;
        }
        print(&match Lab::open(&name) {
            Ok(lab) => {
                let (nodes, pods) = (lab.plan().nodes.len(), lab.plan().pods.len());
                let state = if lab.is_ready() { "up" } else { "incomplete" };
                format!("{name}: {state}, {nodes} nodes, {pods} pods\n")
            }
            Err(error) => format!("{name}: {error:#} (heddle-lab down {name} removes it)\n"),
        })?;
    }
    Ok(())
}
