//! `heddle pods`, and asking a holder.

use std::collections::BTreeMap;
use std::io;
use std::net::IpAddr;
use std::os::fd::OwnedFd;
use std::path::PathBuf;

use anyhow::{Context, anyhow};
use heddle_intercept::Fate;
use heddle_intercept::hooks::Guarded;
use heddle_intercept::request::{self, Answer, HolderStatus, PodStatus, Request};
use heddle_node::admin::Location;
use heddle_node::exit::{Exit, Failure, say};
use heddle_node::table;

use super::holder::{how, namespaces, place, who};
use crate::output::OutputFormat;

/// List the pods whose traffic is intercepted on this node
#[derive(Debug, clap::Args)]
#[command(after_help = "States:
  held       its connections wait until the proxy has its identity and policies, and are refused after five
             seconds
  serving    they go through the proxy
  unserved   there is no proxy, and none is waited for: what WITHOUT PROXY says is in force
  unresponsive
             they wait for a proxy that is there and does not answer: it is stopped, or hangs. The holder
             replaces it by itself, unless heddle node --proxy-timeout says otherwise
  releasing  nothing new is intercepted
  lost       it was enrolled before the holder was restarted, and could not be again: it is tried again,
             and the reason said. heddle unenroll forgets it
  guarded    refused by the guard of a holder before, and not enrolled: its name is not known

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

/// Name of the state of guarded namespaces, beside the states of pods.
const GUARDED: &str = "guarded";

/// Flag that selects the holder.
#[derive(Debug, clap::Args)]
pub(super) struct Holder {
    /// Where the node's holder listens [default: as for `heddle node --holder-socket`]
    #[arg(long, value_name = "PATH")]
    holder_socket: Option<PathBuf>,
}

pub(crate) fn run(args: Args) -> Result<Exit, Failure> {
    let location = Location::holder(args.holder.holder_socket);
    let pods = ask_at(&location, &Request::List, None)?.pods;
    let holder =
        request::describe(&location.path).map_err(|error| unanswered(&error, &location))?;
    let json = json(&pods, &holder).context("the answer has no JSON")?;
    super::print(
        &args
            .output
            .written(&json, || text(&pods, &holder, args.output))?,
    )?;
    Ok(Exit::Ok)
}

/// Sends a request to the holder, and prints its warnings.
pub(super) fn ask(
    holder: Holder,
    request: &Request,
    netns: Option<&OwnedFd>,
) -> Result<Answer, Failure> {
    ask_at(&Location::holder(holder.holder_socket), request, netns)
}

fn ask_at(at: &Location, request: &Request, netns: Option<&OwnedFd>) -> Result<Answer, Failure> {
    let answer = request::ask(&at.path, request, netns);
    let answer = answer.map_err(|error| unanswered(&error, at))?;
    for warning in &answer.warnings {
        say(format_args!("heddle: warning: {warning}"));
    }
    Ok(answer)
}

fn unanswered(error: &io::Error, at: &Location) -> Failure {
    let shown = at.path.display();
    let why = match error.kind() {
        io::ErrorKind::NotFound | io::ErrorKind::ConnectionRefused => format!(
            "no holder answers at {shown}: start one with heddle node --intercept, or name its socket with \
             --holder-socket"
        ),
        io::ErrorKind::TimedOut => format!("the holder at {shown} does not answer in time"),
        io::ErrorKind::PermissionDenied => {
            format!("{shown}: {error}: only root may ask a holder")
        }
        // The error text is from the holder.
        _ => return anyhow!("{error}").into(),
    };
    Failure::new(Exit::Unreachable, anyhow!(why))
}

/// The pods, and guarded namespaces without a known pod in the same form.
fn json(pods: &[PodStatus], holder: &HolderStatus) -> serde_json::Result<Vec<serde_json::Value>> {
    let known = namespaces();
    let guarded = nameless(pods, holder, &known).map(|guarded| {
        Ok(serde_json::json!({
            "workload": null,
            "netns": place(guarded, &known),
            "addresses": guarded.addresses,
            "state": GUARDED,
            "fate": Fate::Refuse,
        }))
    });
    let pods = pods.iter().map(serde_json::to_value);
    pods.chain(guarded).collect()
}

fn text(pods: &[PodStatus], holder: &HolderStatus, output: OutputFormat) -> String {
    let head = [
        "POD",
        "STATE",
        "WITHOUT PROXY",
        "ADDRESSES",
        "NAMESPACE",
        "NUMBER",
    ];
    let rows = pods.iter().map(|pod| {
        [
            pod.workload.to_string(),
            pod.state.as_str().to_owned(),
            pod.fate.as_str().to_owned(),
            addresses(&pod.addresses),
            pod.netns.display().to_string(),
            pod.pod.map_or_else(|| "-".to_owned(), |id| id.to_string()),
        ]
    });
    let known = namespaces();
    let guarded = nameless(pods, holder, &known).map(|guarded| {
        [
            "-".to_owned(),
            GUARDED.to_owned(),
            Fate::Refuse.as_str().to_owned(),
            addresses(&guarded.addresses),
            place(guarded, &known),
            "-".to_owned(),
        ]
    });
    let rows = rows.chain(guarded);
    let reasons = pods.iter().filter_map(|pod| {
        let why = pod.reason.as_ref()?;
        Some(format!(
            "{} is {}: {why}\n",
            pod.workload,
            pod.state.as_str()
        ))
    });
    let (reasons, table) = (
        reasons.collect::<String>(),
        match output {
            OutputFormat::Wide => table::render(head, rows),
            _ => {
                let [head @ .., _] = head;
                table::render(head, rows.map(|[row @ .., _]| row))
            }
        },
    );
    format!("{table}{reasons}\n{}\n{}\n", how(holder), who(holder))
}

/// Guarded namespaces, without those of lost pods, which are listed by name.
fn nameless<'a>(
    pods: &'a [PodStatus],
    holder: &'a HolderStatus,
    known: &'a BTreeMap<u64, PathBuf>,
) -> impl Iterator<Item = &'a Guarded> {
    let is_named = |path: &PathBuf| pods.iter().any(|pod| pod.netns == *path);
    let all = holder.guarded.iter();
    all.filter(move |guarded| !known.get(&guarded.inode).is_some_and(is_named))
}

fn addresses(all: &[IpAddr]) -> String {
    let all: Vec<String> = all.iter().map(IpAddr::to_string).collect();
    all.join(", ")
}
