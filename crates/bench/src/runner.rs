//! The frame of every experiment: its options, the preparation of the machine, and the results at the end.

use std::fs;
use std::path::{Path, PathBuf};

use anyhow::Context;
use clap::Args;
use serde::Serialize;

use super::findings::Findings;
use super::machine::Machine;

/// The remark on a quick run, in text and in pictures.
pub(super) const NOT_FOR_PUBLICATION: &str = "not for publication";

/// Options of every experiment.
#[derive(Args, Clone)]
pub(crate) struct RunOptions {
    /// Fewer and shorter rounds, to see how a change does: not for publication.
    #[arg(long)]
    pub(super) quick: bool,
    /// Write every figure to FILE as JSON.
    #[arg(long, value_name = "FILE")]
    json: Option<PathBuf>,
    /// Set once the process has a network namespace of its own.
    #[arg(long, hide = true)]
    pub(super) isolated: bool,
}

/// Which Heddle is measured.
#[derive(Args, Clone)]
pub(crate) struct Subject {
    /// The Heddle to measure; by default the one beside this program.
    #[arg(long, value_name = "PATH")]
    heddle: Option<PathBuf>,
}

/// The network that an experiment's traffic uses.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Network {
    /// On the loopback interface of a namespace of its own.
    Own,
    /// In labs, which have networks of their own.
    Labs,
}

/// A running experiment.
pub(super) struct Runner {
    pub(super) quick: bool,
    pub(super) findings: Findings,
    json: Option<PathBuf>,
}

impl RunOptions {
    /// Prepares the machine. For [`Network::Own`] the program starts again in a network namespace, and only that
    /// process returns from here: whatever has to be downloaded has to be downloaded before.
    ///
    /// # Errors
    /// When the machine is too small, or the program cannot be started again.
    pub(super) fn machine(&self, network: Network) -> anyhow::Result<Machine> {
        let machine = match network {
            Network::Own => Machine::prepare(self.isolated)?,
            Network::Labs => Machine::describe()?,
        };
        anyhow::ensure!(
            machine.cores >= 2,
            "this experiment needs two cores, one for the proxies alone"
        );
        if self.quick {
            println!("A quick run: {NOT_FOR_PUBLICATION}.");
        }
        Ok(machine)
    }

    /// Begins an experiment.
    ///
    /// # Errors
    /// As [`RunOptions::machine`].
    pub(super) fn begin(&self, name: &'static str, network: Network) -> anyhow::Result<Runner> {
        Ok(Runner {
            quick: self.quick,
            findings: Findings::new(name, self.quick, self.machine(network)?),
            json: self.json.clone(),
        })
    }

    /// Writes the results to the file of `--json`, if there is one.
    ///
    /// # Errors
    /// When the file cannot be written.
    pub(super) fn write_json(&self, found: &impl Serialize) -> anyhow::Result<()> {
        write_json(self.json.as_deref(), found)
    }
}

impl Subject {
    /// The path of the Heddle to measure.
    ///
    /// # Errors
    /// When there is no such file.
    pub(super) fn heddle(&self) -> anyhow::Result<PathBuf> {
        let heddle = match &self.heddle {
            Some(path) => path.clone(),
            None => std::env::current_exe()?.with_file_name("heddle"),
        };
        anyhow::ensure!(
            heddle.is_file(),
            "there is no {} (cargo build --release -p heddle, or --heddle PATH)",
            heddle.display()
        );
        Ok(std::path::absolute(heddle)?)
    }
}

impl Runner {
    /// Prints the results, also those that were measured before a failure; only complete results are written to a file.
    ///
    /// # Errors
    /// The failure of the experiment, or when the file cannot be written.
    pub(super) fn end<T>(self, measured: anyhow::Result<T>) -> anyhow::Result<T> {
        self.findings.print();
        let measured = measured?;
        self.findings.print_figures();
        write_json(self.json.as_deref(), &self.findings)?;
        Ok(measured)
    }
}

/// Writes the results to a file, if one is given.
///
/// # Errors
/// When the file cannot be written.
pub(super) fn write_json(file: Option<&Path>, found: &impl Serialize) -> anyhow::Result<()> {
    let Some(file) = file else { return Ok(()) };
    let text = serde_json::to_string_pretty(found)?;
    fs::write(file, text).with_context(|| format!("cannot write {}", file.display()))
}
