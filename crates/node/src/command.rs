//! `heddle node`, and the program `heddle-node`, which is the same.

use std::net::SocketAddr;
use std::path::{Path, PathBuf};

use anyhow::anyhow;
use clap::Args as _;
use heddle_model::NodeName;

use crate::arguments::{HostAndPort, address_and_port, node_name};
use crate::exit::{Exit, Failure};
use crate::hold::{self, HolderOptions};
use crate::intercept::{HeldArguments, InterceptFlags};
use crate::qos_agent::QosAgent;
use crate::run::{self, NodeOptions};
use crate::settings::{
    DiscoveryMode, GivenSettings, LogFlags, NodeSettings, ServingFlags, Settings, SettingsError,
    Text,
};

/// Name of the program that only runs a node.
pub const PROGRAM: &str = "heddle-node";

/// Serve as a node of a mesh that a control plane describes
///
/// The node joins with a token that the control plane made for its name (heddle token create), once; from then on it
/// authenticates with its certificate, which it renews. It is told its part of the mesh, what to trust and what to
/// refuse, and asks for certificates of exactly the service accounts of its own workloads. Everything is kept in the
/// state folder, keys included: the folder is the node's identity.
///
/// While the control plane is away the node goes on, and starts again, with what it has; certificates are used until
/// they expire, and expired ones are never accepted. heddle check shows when that is.
///
/// Commands of LocalWorkloads come over the network here, and the control plane chooses
/// them: they are run only with --run.
///
/// Signals: SIGTERM or SIGINT drains and stops, a second one, half a second later or more, stops at once; SIGHUP
/// reads the settings of the log and the access log again, and reopens the access log.
#[derive(Debug, Clone, clap::Args)]
#[command(after_help = "Examples:
  heddle node --name edge-1 --control 192.0.2.1:15012 --listen 0.0.0.0:15008 --token-file token
  heddle token create edge-1 | ssh edge-1 heddle node --name edge-1 --control 192.0.2.1:15012 \\
      --listen 0.0.0.0:15008 --token-file -
  heddle node --name edge-1 --control 192.0.2.1:15012 --listen 0.0.0.0:15008 \\
      --intercept --pods-cgroup /sys/fs/cgroup/kubepods.slice --mesh-range 10.0.0.0/8

Exit codes:
  0  drained and stopped
  1  failed, not joined, or stopped at once by a second signal
  2  wrong command line
  3  settings refused
  5  another heddle has the admin socket or the state folder")]
pub struct Args {
    /// The node's name: the one in its token, and the nodeName of its workloads' manifests. Required
    #[arg(long, value_name = "NAME", value_parser = node_name)]
    name: Option<NodeName>,
    /// Where the control plane is. Required
    #[arg(long, value_name = "HOST:PORT")]
    control: Option<HostAndPort>,
    /// Where other nodes connect; they are told the real port for port 0, and for an address such as
    /// 0.0.0.0 the one from which this node reaches the control plane. Required
    #[arg(long, value_name = "ADDRESS:PORT", value_parser = address_and_port)]
    listen: Option<SocketAddr>,
    /// The token to join with, in a file or from standard input (`-`). A node that has joined does not use it, unless
    /// it is in a file and names a root that the node does not trust: then the node joins again
    #[arg(long, value_name = "FILE")]
    token_file: Option<PathBuf>,
    /// Where the node keeps its keys, certificates and mesh
    /// [default: $XDG_STATE_HOME/heddle/node, else ~/.local/state/heddle/node, as root
    /// /var/lib/heddle/node]
    #[arg(long, value_name = "FOLDER")]
    state: Option<PathBuf>,
    /// How much of the mesh the node knows: all of it, or what its workloads call [default:
    /// on-demand with --intercept, else eager]
    #[arg(long, value_name = "MODE")]
    discovery: Option<DiscoveryMode>,
    /// Run the commands of this node's LocalWorkloads, which the control plane chooses
    #[arg(long)]
    run: bool,
    /// Run the agent of node QoS, too, as a process of its own (heddle qos run). The settings say which pods there are
    #[arg(long)]
    qos: bool,
    /// Settings of the process, which may set all that these flags set; flags win over the file. It must not set
    /// anything of the mesh, which the control plane describes
    #[arg(long, value_name = "FILE")]
    config: Option<PathBuf>,
    #[command(flatten)]
    serving: ServingFlags,
    #[command(flatten)]
    log: LogFlags,
    #[command(flatten)]
    intercept: InterceptFlags,
    #[command(flatten)]
    held: HeldArguments,
}

impl Args {
    /// Merges the settings file and the flags.
    fn settings(self) -> Result<(Settings, HeldArguments), SettingsError> {
        let mut given = GivenSettings::read_for_node(self.config.as_deref())?;
        self.serving.over(&mut given);
        self.log.over(&mut given);
        self.intercept.over(&mut given);
        given.flag("--name", "node.name", self.name, |to, name| {
            to.node.name = Some(name);
        });
        given.flag("--control", "node.control", self.control, |to, at| {
            to.node.control = Some(Text(at));
        });
        given.flag("--listen", "node.listen", self.listen, |to, at| {
            to.node.listen = Some(at);
        });
        given.flag(
            "--token-file",
            "node.token_file",
            self.token_file,
            |to, file| {
                to.node.token_file = Some(file);
            },
        );
        given.flag("--state", "node.state", self.state, |to, folder| {
            to.node.state = Some(folder);
        });
        given.flag(
            "--discovery",
            "node.discovery.mode",
            self.discovery,
            |to, mode| {
                to.node.discovery.mode = Some(mode);
            },
        );
        given.flag("--run", "node.run", self.run.then_some(true), |to, run| {
            to.node.run = run;
        });
        given.flag(
            "--qos",
            "qos.enabled",
            self.qos.then_some(true),
            |to, qos| {
                to.qos.enabled = qos;
            },
        );
        Ok((given.checked_for_node()?, self.held))
    }
}

/// Command line of the program [`PROGRAM`]: the flags of `heddle node`.
pub fn program() -> clap::Command {
    let command = Args::augment_args(clap::Command::new(PROGRAM));
    let examples = command.get_after_help().map(ToString::to_string);
    let examples = examples.unwrap_or_default();
    command
        .version(env!("CARGO_PKG_VERSION"))
        .after_help(examples.replace("heddle node", PROGRAM))
}

/// Which program a node is part of.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum NodeProgram {
    /// `heddle`, which has `heddle qos run`.
    Heddle,
    /// [`PROGRAM`], which has not.
    Alone,
}

/// Serves until a signal ends it. With `--intercept`, holds pods and starts a proxy that serves them.
///
/// # Errors
/// When settings, holder or node fail, with the exit code for it.
pub fn run(program: NodeProgram, args: Args) -> Result<Exit, Failure> {
    let (settings, held) = args.clone().settings()?;
    let node = settings.node.clone();
    let forget_after = node.forget_after();
    let (Some(name), Some(control), Some(listen)) = (node.name, node.control, node.listen) else {
        return Err(Failure::new(Exit::Usage, incomplete(&settings.node)));
    };
    let held = held.told(&node.interception);
    let qos = match (settings.qos.enabled && held.is_none(), program) {
        (false, _) => None,
        (true, NodeProgram::Heddle) => Some(QosAgent::new(&settings, args.config.clone())),
        (true, NodeProgram::Alone) => {
            let said = "qos.enabled (--qos): this program has no agent of node QoS: run heddle node instead, or heddle qos \
                        run beside this node";
            return Err(Failure::new(Exit::Refused, anyhow!(said)));
        }
    };
    if node.interception.enabled && held.is_none() {
        if node.run {
            let said = "--run (node.run) is for a node without pods: heddle does not start what pods run; leave out \
                        --run or --intercept";
            return Err(Failure::new(Exit::Usage, anyhow!(said)));
        }
        if node.token_file.as_deref() == Some(Path::new("-")) {
            let said = "with --intercept the token must be in a file: the proxy has no standard input of its own";
            return Err(Failure::new(Exit::Usage, anyhow!(said)));
        }
        let options = HolderOptions {
            interception: node.interception,
            listen,
            state: node.state,
            qos,
        };
        return hold::run(options, &settings);
    }
    let options = NodeOptions {
        held,
        name,
        control: control.0.0,
        listen,
        token: node.token_file,
        state: node.state,
        forget_after,
        qos,
    };
    let reload = Box::new(move || Ok(args.clone().settings()?.0));
    run::run(options, settings, reload)
}

/// Names what a node cannot do without.
fn incomplete(node: &NodeSettings) -> anyhow::Error {
    let required = [
        (node.name.is_some(), "--name NAME (node.name)"),
        (node.control.is_some(), "--control HOST:PORT (node.control)"),
        (node.listen.is_some(), "--listen ADDRESS:PORT (node.listen)"),
    ];
    let missing = required.iter().filter(|(is_given, _)| !is_given);
    let missing: Vec<&str> = missing.map(|(_, what)| *what).collect();
    anyhow!(
        "a node needs {}: as a flag, or as a field in the file of --config",
        missing.join(", ")
    )
}
