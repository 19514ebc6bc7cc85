//! `heddle deps`.

use heddle_model::WorkloadName;
use heddle_model::calendar::utc;
use heddle_node::exit::{Exit, Failure};
use heddle_node::table;

use super::Asked;
use super::envoy::workload;
use crate::order::{DependenciesStatus, Order};

/// Show what a workload with a lazy Envoy uses, as it declares it and as the control plane has learned it
///
/// The Envoy of a workload with the annotation `lazy-xds: "true"` knows only these Services, and those to which their
/// routes lead; requests to any other go through a gateway, which reports them. Workloads of one account share what they
/// learn. What is not used for a time (`control.forget_dependencies_after_s`) is forgotten, except for what the workload declares
/// by the annotation `heddle.dev/uses`.
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:
  heddle deps shop/web
  heddle deps shop/web --output json

Exit codes:
  0  shown
  1  failed, or there is no such workload
  2  wrong command line
  4  no running heddle answers on the admin socket")]
pub(crate) struct Args {
    /// The workload: NAMESPACE/NAME
    #[arg(value_name = "WORKLOAD", value_parser = workload)]
    workload: WorkloadName,
    #[command(flatten)]
    asked: Asked,
}

pub(crate) fn run(args: &Args) -> Result<Exit, Failure> {
    let order = Order::Dependencies {
        workload: args.workload.to_string(),
    };
    let status: DependenciesStatus = args.asked.order(&order)?;
    args.asked.show(&status, text)?;
    Ok(Exit::Ok)
}

fn text(status: &DependenciesStatus) -> String {
    let DependenciesStatus {
        workload, account, ..
    } = status;
    let about = match &status.because {
        None => format!("{workload} is lazy: its Envoy knows what {account} uses\n"),
        Some(why) => format!("{workload} is not lazy: {why}\n"),
    };
    if status.dependencies.is_empty() {
        return format!("{about}nothing was learned yet\n");
    }
    let rows = status.dependencies.iter().map(|one| {
        let service = match one.exists {
            true => one.service.clone(),
            false => format!("{} (there is no such Service)", one.service),
        };
        let (resources, bytes) = (one.resources.to_string(), one.bytes.to_string());
        let time = |seconds: Option<u64>| seconds.map_or_else(String::new, utc);
        let learned = match (one.declared, one.learned) {
            (true, _) => "declared".to_owned(),
            (false, learned) => time(learned),
        };
        [service, learned, time(one.used), resources, bytes]
    });
    let titles = ["SERVICE", "LEARNED", "LAST USED", "RESOURCES", "BYTES"];
    about + &table::render(titles, rows)
}
