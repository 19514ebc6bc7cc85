//! `heddle qos restore`: everything that a killed agent has left is put back.

use std::collections::BTreeMap;
use std::fmt::Display;
use std::path::Path;

use anyhow::{Context, anyhow};
use heddle_node::exit::{Exit, Failure};
use heddle_node::table::count;
use heddle_qos::arbiter::journal::{Journal, StateFolder};
use heddle_qos::arbiter::{Arbiter, Restored};
use heddle_qos::cgroup::{Mounts, System};
use heddle_qos::network::keeper::Keeper;
use heddle_qos::network::{self, keeper};
use heddle_qos::state;

use super::AgentFlags;
use crate::commands::print;
use crate::qos;

/// Put back what a killed agent has left
///
/// The next `heddle qos run` does so, too. Values that other programs wrote since then stay, and are named.
#[derive(Debug, clap::Args)]
#[command(after_help = "Exit codes:
  0  everything is as it was, apart from what other programs wrote since
  1  failed, or not everything could be put back, or is known: a journal has lines that cannot be read
  2  wrong command line
  3  settings refused
  5  an agent runs: stop it, and it puts everything back itself")]
pub(super) struct RestoreArgs {
    #[command(flatten)]
    agent: AgentFlags,
}

/// What has become of settings.
#[derive(Default)]
struct Outcome {
    /// How many of each kind.
    counts: BTreeMap<&'static str, usize>,
    /// What has become of the proxy's threads.
    threads: Option<String>,
    /// Those that another program has written since.
    foreign: Vec<String>,
    /// What could not be put back, and why.
    problems: Vec<String>,
}

impl Outcome {
    fn is(&mut self, what: &'static str) {
        *self.counts.entry(what).or_default() += 1;
    }

    fn foreign(&mut self, key: &impl Display, value: &impl Display) {
        self.is("left as another program wrote them");
        self.foreign.push(format!("  the {key} is {value}\n"));
    }

    fn failed(&mut self, key: &impl Display, original: &impl Display, error: &impl Display) {
        let what = format!("the {key} cannot be set back to {original}: {error}");
        self.problems.push(what);
    }

    fn text(&self) -> String {
        let parts = self.counts.iter();
        let parts = parts.map(|(what, number)| format!("{} {what}", count(*number, "setting")));
        let parts: Vec<String> = parts.chain(self.threads.clone()).collect();
        match parts.is_empty() {
            true => String::new(),
            false => format!("{}\n{}", parts.join(", "), self.foreign.concat()),
        }
    }
}

pub(super) fn run(args: RestoreArgs) -> Result<Exit, Failure> {
    let path = args.agent.folder()?;
    if !path.exists() {
        let shown = path.display();
        print(&format!(
            "nothing is changed: no agent has made {shown} since this machine was started\n"
        ))?;
        return Ok(Exit::Ok);
    }
    let folder = qos::open(&path)?;
    let mounts = Mounts::find().context("cannot find the control groups")?;
    let mut outcome = Outcome::default();
    // Those that are there before: a copy that is made now is named by what opens the journal.
    let damaged = state::damaged(&path);
    // One that fails holds up no other.
    let parts = [
        restore_threads(&path, &mut outcome),
        restore_network(&folder, &mounts, &mut outcome),
        restore_groups(&folder, mounts, &mut outcome),
    ];
    let failed = parts.into_iter().filter_map(Result::err);
    let failed = failed.map(|failure| failure.to_string());
    outcome.problems.extend(failed);
    match damaged {
        Ok(kept) => outcome
            .problems
            .extend(kept.iter().map(|kept| damage(kept))),
        Err(error) => outcome.problems.push(error.to_string()),
    }
    let said = outcome.text();
    if let Some(why) = folder.read_only()
        && !said.is_empty()
    {
        outcome.problems.push(format!(
            "the journals still say what is put back, since nothing can be written there ({why}): restore again when that is over"
        ));
    }
    if !outcome.problems.is_empty() {
        print(&said)?;
        return Err(anyhow!("{}", outcome.problems.join("; ")).into());
    }
    match said.is_empty() {
        true => print(&format!("nothing is changed ({})\n", path.display()))?,
        false => print(&said)?,
    }
    Ok(Exit::Ok)
}

/// What to say of a copy of a journal that is kept.
pub(super) fn damage(kept: &Path) -> String {
    let kept = kept.display();
    format!(
        "{kept} has lines that cannot be read, and what they say could not be put back: look, then remove the file"
    )
}

fn restore_threads(path: &Path, outcome: &mut Outcome) -> Result<(), Failure> {
    let put_back = qos::put_threads_back(path);
    outcome.threads = match put_back.map_err(|error| anyhow!("{error}"))? {
        Some((group, 0)) => Some(format!("the group {group} of the proxy's threads removed")),
        Some((_, back)) => Some(format!("{} of the proxy put back", count(back, "thread"))),
        None => None,
    };
    Ok(())
}

fn restore_network(
    folder: &StateFolder,
    mounts: &Mounts,
    outcome: &mut Outcome,
) -> Result<(), Failure> {
    let opened = network::Journal::open(folder);
    let (journal, held): (network::Journal, _) = opened.map_err(|error| qos::unreadable(&error))?;
    outcome.problems.extend(journal.damage().map(str::to_owned));
    if held.is_empty() {
        return Ok(());
    }
    let kernel = network::system::TrafficControl::open(System::new(mounts.clone()));
    let kernel = kernel.context("cannot speak to the kernel about the network")?;
    let mut keeper = Keeper::new(kernel, journal, held, Default::default());
    for (key, held, done) in keeper.restore_all() {
        match done {
            keeper::Restored::Done => outcome.is(PUT_BACK),
            keeper::Restored::Gone => outcome.is("gone with their interfaces"),
            keeper::Restored::Foreign(what) => outcome.foreign(&key, &what),
            keeper::Restored::Failed(error) => outcome.failed(&key, &held.original(), &error),
        }
    }
    Ok(())
}

fn restore_groups(
    folder: &StateFolder,
    mounts: Mounts,
    outcome: &mut Outcome,
) -> Result<(), Failure> {
    let opened = Journal::open(folder);
    let (journal, held) = opened.map_err(|error| qos::unreadable(&error))?;
    outcome.problems.extend(journal.damage().map(str::to_owned));
    let mut arbiter = Arbiter::new(System::new(mounts), journal, held);
    for (key, held, done) in arbiter.restore_all() {
        let shown = |value| key.knob.shown(value);
        match done {
            Restored::Done => outcome.is(PUT_BACK),
            Restored::Gone => outcome.is("gone with their control groups"),
            Restored::Foreign(value) => outcome.foreign(&key, &shown(value)),
            Restored::Failed(error) => outcome.failed(&key, &shown(held.original), &error),
        }
    }
    Ok(())
}

const PUT_BACK: &str = "put back";
