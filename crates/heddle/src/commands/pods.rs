//! `heddle pods`, and asking a holder.

use std::io;
use std::os::fd::OwnedFd;
use std::path::PathBuf;

use anyhow::{Context, anyhow};
use heddle_intercept::request::{self, Answer, PodStatus, Request};

use crate::admin::Location;
use crate::cli::OutputFormat;
use crate::exit::{Exit, Failure};
use crate::table;

/// List the pods whose traffic is intercepted on this node
#[derive(Debug, clap::Args)]
#[command(after_help = "States:
  held       its connections wait until the proxy has its identity and policies
  serving    they go through the proxy
  unserved   there is no proxy: what WITHOUT PROXY says is in force
  releasing  nothing new is intercepted
  lost       it was enrolled before the holder was restarted, and could not be again: it is tried again,
             and the reason said. heddle release forgets it

Examples:
  heddle pods
  heddle pods --output json | jq -r '.[] | select(.state != \"serving\") | .workload'

Exit codes:
  0  done
  1  failed
  2  wrong command line
  4  no holder answers")]
pub(crate) struct Args {
    /// How to print them
    #[arg(long, short, value_name = "FORMAT", default_value = "text")]
    output: OutputFormat,
    #[command(flatten)]
    holder: Holder,
}

/// Which holder.
#[derive(Debug, clap::Args)]
pub(super) struct Holder {
    /// Where the node's holder listens [default: as for `heddle node --holder-socket`]
    #[arg(long, value_name = "PATH")]
    holder_socket: Option<PathBuf>,
}

pub(crate) fn run(args: Args) -> Result<Exit, Failure> {
    let pods = ask(args.holder, &Request::List, None)?.pods;
    super::print(&match args.output {
        OutputFormat::Json => {
            let json = serde_json::to_string(&pods).context("the answer has no JSON")?;
            json + "\n"
        }
        OutputFormat::Text => text(&pods),
    })?;
    Ok(Exit::Ok)
}

/// Asks the holder, and says what it warns of.
pub(super) fn ask(
    holder: Holder,
    request: &Request,
    netns: Option<&OwnedFd>,
) -> Result<Answer, Failure> {
    let path = Location::holder(holder.holder_socket).path;
    let answer = request::ask(&path, request, netns).map_err(|error| {
        let shown = path.display();
        match error.kind() {
            io::ErrorKind::NotFound | io::ErrorKind::ConnectionRefused => Failure::new(
                Exit::Unreachable,
                anyhow!("no holder answers at {shown}: start one with heddle node --intercept, or name its \
                         socket with --holder-socket"),
            ),
            io::ErrorKind::TimedOut => Failure::new(
                Exit::Unreachable,
                anyhow!("the holder at {shown} does not answer in time"),
            ),
            io::ErrorKind::PermissionDenied => Failure::new(
                Exit::Unreachable,
                anyhow!("{shown}: {error}: only root and the user that the holder runs as may ask it"),
            ),
            _ => Failure::from(anyhow!(error)),
        }
    })?;
    for warning in &answer.warnings {
        eprintln!("heddle: warning: {warning}");
    }
    Ok(answer)
}

fn text(pods: &[PodStatus]) -> String {
    let head = ["POD", "STATE", "WITHOUT PROXY", "ADDRESSES", "NAMESPACE"];
    let rows = pods.iter().map(|pod| {
        let addresses: Vec<String> = pod.addresses.iter().map(ToString::to_string).collect();
        [
            pod.workload.to_string(),
            pod.state.as_str().to_owned(),
            pod.fate.as_str().to_owned(),
            addresses.join(", "),
            pod.netns.display().to_string(),
        ]
    });
    let reasons = pods.iter().filter_map(|pod| {
        let why = pod.reason.as_ref()?;
        Some(format!(
            "{} is {}: {why}\n",
            pod.workload,
            pod.state.as_str()
        ))
    });
    table::render(head, rows) + &reasons.collect::<String>()
}
