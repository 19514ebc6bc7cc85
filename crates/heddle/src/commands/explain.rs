//! `heddle explain`.

use std::collections::BTreeSet;
use std::path::PathBuf;

use anyhow::{Context, anyhow};
use heddle_compile::{Caller, Destination, Request, explain_denying};
use heddle_model::{Mesh, SpiffeId};
use heddle_node::exit::{Exit, Failure, say};
use heddle_node::settings::GivenSettings;
use serde::Deserialize;

use super::folder::{self, Reader};
use crate::output::OutputFormat;

/// Say whether a caller gets through, and why
///
/// Names the policy and the rule that decide at each endpoint of a Service or workload, and what would
/// change it. Routes are not followed, and nothing is sent.
///
/// Identities on the deny-list are refused between nodes, whatever the policies say.
///
/// A control plane knows every workload, a node only its own: of a caller on another node it knows the service account,
/// and a decision of another node has to be asked there. A node may know only the Services of its workloads, and what
/// these have called.
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:
  heddle explain shop/web shop/reviews GET /reviews/1
  heddle explain shop/sa/cart shop/reviews:80
  heddle explain anonymous shop/db
  heddle explain shop/web shop/reviews GET /reviews/1 --control
  heddle explain shop/web shop/workload/reviews GET / --dir examples/bookstore
  heddle explain shop/web shop/reviews --output json | jq '.endpoints[].outcome'

Exit codes:
  0  answered, whatever the answer is
  1  failed, or there is no such caller or destination
  2  wrong command line
  3  manifests or settings refused
  4  no running heddle answers on the admin socket")]
pub(crate) struct Args {
    /// Who calls: NAMESPACE/WORKLOAD, NAMESPACE/sa/ACCOUNT, or anonymous
    #[arg(value_name = "FROM")]
    from: Caller,
    /// Who is called: NAMESPACE/SERVICE or NAMESPACE/workload/NAME, with :PORT for one port
    #[arg(value_name = "TO")]
    to: Destination,
    /// The method of a request; without one the question is about a connection
    #[arg(value_name = "METHOD", requires = "path")]
    method: Option<String>,
    /// Its path, with the query if it has one
    #[arg(value_name = "PATH")]
    path: Option<String>,
    /// Ask this folder of manifests instead of a running heddle
    #[arg(long, value_name = "DIR", conflicts_with_all = ["socket", "control"])]
    dir: Option<PathBuf>,
    /// With --dir: settings of the process, as for `heddle up`
    #[arg(long, value_name = "FILE", requires = "dir")]
    config: Option<PathBuf>,
    #[command(flatten)]
    at: super::At,
    /// How to print the answer
    #[arg(long, short, value_name = "FORMAT", default_value = "text")]
    output: OutputFormat,
}

/// A hint for the operator of a node that knows only what it uses.
const LEARNS: &str = "but this node knows only the Services of its workloads and what these have called: the control plane \
                      knows all (--control)";

pub(crate) fn run(args: &Args) -> Result<Exit, Failure> {
    let request = match (&args.method, &args.path) {
        (Some(method), Some(path)) => {
            let request = Request::new(method, path);
            Some(request.map_err(|error| Failure::new(Exit::Usage, anyhow!("{error}")))?)
        }
        _ => None,
    };
    let Config { mesh, denied } = match &args.dir {
        Some(dir) => {
            let settings = GivenSettings::read(args.config.as_deref())?.checked()?;
            let read = folder::read(dir, &settings.mesh, None);
            let mesh = read.mesh.ok_or_else(|| {
                for problem in &read.report.problems {
                    say(problem);
                }
                let refused = anyhow!("{} is refused: nothing to explain", dir.display());
                Failure::new(Exit::Refused, refused)
            })?;
            if read.reader == Reader::Lab {
                say("heddle: read for a lab: addresses stand in for those that it will give");
            }
            let denied = BTreeSet::new();
            Config { mesh, denied }
        }
        None => served(&args.at)?,
    };
    let explanation = explain_denying(&mesh, &denied, &args.from, &args.to, request.as_ref())
        .map_err(|error| match mesh.named {
            None => Failure::from(anyhow!("{error}")),
            Some(_) => Failure::from(anyhow!("{error}; {LEARNS}")),
        })?;
    let text = || format!("{explanation}\n");
    super::print(&args.output.written(&explanation, text)?)?;
    Ok(Exit::Ok)
}

/// Mesh and deny-list that the question is about.
#[derive(Deserialize)]
struct Config {
    mesh: Mesh,
    /// Identities on the deny-list.
    #[serde(default)]
    denied: BTreeSet<SpiffeId>,
}

/// The mesh that a running Heddle serves.
fn served(at: &super::At) -> Result<Config, Failure> {
    let answer = at.get("/config")?;
    let config: Config = serde_json::from_str(&answer)
        .context("the answer is not understood: is it another version of heddle?")?;
    let checked = config.mesh.check_invariants();
    checked.map_err(|broken| anyhow!("the answer is not understood: {broken}"))?;
    Ok(config)
}
