//! `heddle qos restore`: everything that a killed agent has left is put back.

use std::collections::BTreeMap;

use anyhow::{Context, anyhow};
use heddle_node::exit::{Exit, Failure};
use heddle_node::table::count;
use heddle_qos::arbiter::{Arbiter, Restored};
use heddle_qos::cgroup::{Mounts, System};
use heddle_qos::network::keeper::Keeper;
use heddle_qos::network::{self, keeper};

use super::State;
use crate::commands::print;
use crate::qos;

/// What became of settings, as in the output of `restore`.
const PUT_BACK: &str = "put back";
const FOREIGN: &str = "left as another program wrote them";

/// Put back what a killed agent has left
///
/// The next `heddle qos run` does so, too. Values that other programs wrote since then stay.
#[derive(Debug, clap::Args)]
#[command(after_help = "Exit codes:
  0  everything is as it was
  1  failed, or not everything could be put back
  2  wrong command line
  5  an agent runs: stop it, and it puts everything back itself")]
pub(super) struct RestoreArgs {
    #[command(flatten)]
    state: State,
}

pub(super) fn run(args: RestoreArgs) -> Result<Exit, Failure> {
    let folder = args.state.folder();
    let (journal, held) = qos::open(&folder)?;
    qos::put_threads_back(&folder)?;
    let mounts = Mounts::find().context("cannot find the control groups")?;
    let mut failed = Vec::new();
    // What is told if not everything could be put back.
    let mut problems: Vec<String> = journal.damage().map(str::to_owned).into_iter().collect();
    let mut put_back: BTreeMap<&str, usize> = BTreeMap::new();
    let (log, of_network) = journal
        .beside()
        .map_err(|error| qos::unreadable(&folder, &error))?;
    problems.extend(log.damage().map(str::to_owned));
    if !of_network.is_empty() {
        let kernel = network::system::TrafficControl::open(System::new(mounts.clone()));
        let kernel = kernel.context("cannot speak to the kernel about the network")?;
        let mut keeper = Keeper::new(kernel, log, of_network, Default::default());
        for (key, held, done) in keeper.restore_all() {
            let what = match done {
                keeper::Restored::Done => PUT_BACK,
                keeper::Restored::Gone => "gone with their interfaces",
                keeper::Restored::Foreign(_) => FOREIGN,
                keeper::Restored::Failed(error) => {
                    failed.push(format!("the {key} to {}: {error}", held.original()));
                    continue;
                }
            };
            *put_back.entry(what).or_default() += 1;
        }
    }
    let mut arbiter = Arbiter::new(System::new(mounts), journal, held);
    for (key, held, done) in arbiter.restore_all() {
        let what = match done {
            Restored::Done => PUT_BACK,
            Restored::Gone => "gone with their control groups",
            Restored::Foreign(_) => FOREIGN,
            Restored::Failed(error) => {
                failed.push(format!("the {key} to {}: {error}", held.original));
                continue;
            }
        };
        *put_back.entry(what).or_default() += 1;
    }
    let parts: Vec<String> = put_back
        .iter()
        .map(|(what, number)| format!("{} {what}", count(*number, "setting")))
        .collect();
    if !failed.is_empty() {
        problems.push(format!("cannot set back {}", failed.join("; ")));
    }
    if !problems.is_empty() {
        if !parts.is_empty() {
            print(&format!("{}\n", parts.join(", ")))?;
        }
        return Err(anyhow!("{}", problems.join("; ")).into());
    }
    match parts.is_empty() {
        true => print("nothing is changed\n")?,
        false => print(&format!("{}\n", parts.join(", ")))?,
    }
    Ok(Exit::Ok)
}
