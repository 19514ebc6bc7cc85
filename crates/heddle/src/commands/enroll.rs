//! `heddle enroll`.

use std::fs::File;
use std::os::fd::OwnedFd;
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

use anyhow::Context;
use heddle_intercept::request::Request;
use heddle_intercept::{Exclude, PortRange};
use heddle_model::{Cidr, WorkloadName};
use heddle_node::arguments::workload;
use heddle_node::exit::{Exit, Failure};
use rustix::fs::OFlags;

use super::pods::{Holder, ask};

/// Add a running pod to the mesh
///
/// From now on, connections of the pod's programs to the mesh's addresses, and connections to these programs, go
/// through the node's proxy, which they do not notice; connections that are open stay as they are. New ones wait until
/// the proxy has the pod's identity and policies. A pod that is enrolled already stays so; the path that is given now
/// is used to find it again, if it lasts longer.
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:
  heddle enroll shop/reviews --netns /run/netns/reviews
  heddle enroll shop/db --netns /run/netns/db --exclude-inbound 22

Exit codes:
  0  enrolled
  1  refused, and why
  2  wrong command line
  4  no holder answers")]
pub(crate) struct Args {
    /// The workload whose pod it is, as the control plane knows it
    #[arg(value_name = "NAMESPACE/NAME", value_parser = workload)]
    workload: WorkloadName,
    /// The pod's network namespace. It is looked for there again after the holder was restarted, so name a
    /// place that lasts, such as /run/netns/NAME, rather than /proc/PID/ns/net
    #[arg(long, value_name = "PATH")]
    netns: PathBuf,
    /// Ports of the pod that are not intercepted, such as 22 or 8000-8010. May be repeated
    #[arg(long, value_name = "PORTS")]
    exclude_inbound: Vec<PortRange>,
    /// Destination ports that are not intercepted when the pod dials them. May be repeated
    #[arg(long, value_name = "PORTS")]
    exclude_outbound: Vec<PortRange>,
    /// Destination networks that are not intercepted when the pod dials them. May be repeated
    #[arg(long, value_name = "CIDR")]
    exclude_network: Vec<Cidr>,
    #[command(flatten)]
    holder: Holder,
}

pub(crate) fn run(args: Args) -> Result<Exit, Failure> {
    let shown = args.netns.display();
    let netns = File::options()
        .read(true)
        // Opening must not block, whatever file is at the path.
        .custom_flags(OFlags::NONBLOCK.bits().cast_signed())
        .open(&args.netns)
        .with_context(|| format!("{}: cannot open the namespace {shown}", args.workload))?;
    let netns = OwnedFd::from(netns);
    let absolute = std::path::absolute(&args.netns);
    let request = Request::Enroll {
        workload: args.workload.clone(),
        netns: absolute.context("there is no current folder")?,
        exclude: Exclude {
            inbound_ports: args.exclude_inbound,
            outbound_ports: args.exclude_outbound,
            outbound_networks: args.exclude_network,
        },
    };
    let outcome = ask(args.holder, &request, Some(&netns));
    outcome.map_err(|failure| of_pod(failure, &args.workload, &args.netns))?;
    Ok(Exit::Ok)
}

/// Adds the pod, and the path if the message does not name it, to a holder's refusal.
fn of_pod(failure: Failure, workload: &WorkloadName, netns: &Path) -> Failure {
    if failure.exit != Exit::Failed {
        return failure;
    }
    let (said, path) = (failure.to_string(), netns.display().to_string());
    match said.contains(&path) {
        true => failure.instead(&format!("{workload} is not enrolled: {said}")),
        false => failure.instead(&format!("{workload} is not enrolled: {path}: {said}")),
    }
}
