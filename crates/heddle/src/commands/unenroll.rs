//! `heddle unenroll`.

use heddle_intercept::request::Request;
use heddle_model::WorkloadName;
use heddle_node::arguments::workload;
use heddle_node::exit::{Exit, Failure};

use super::pods::{Holder, ask};

/// Take a running pod out of the mesh
///
/// New connections from and to its programs do not go through the proxy any more. Those that do stay open until they
/// end.
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:
  heddle unenroll shop/reviews

Exit codes:
  0  unenrolled
  1  refused, and why
  2  wrong command line
  4  no holder answers")]
pub(crate) struct Args {
    /// The workload whose pod it is
    #[arg(value_name = "NAMESPACE/NAME", value_parser = workload)]
    workload: WorkloadName,
    #[command(flatten)]
    holder: Holder,
}

pub(crate) fn run(args: Args) -> Result<Exit, Failure> {
    let request = Request::Unenroll {
        workload: args.workload,
    };
    ask(args.holder, &request, None)?;
    Ok(Exit::Ok)
}
