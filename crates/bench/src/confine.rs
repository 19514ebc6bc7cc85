//! `heddle-lab confine … -- PROGRAM ARGS`: becomes the program, held to a core and control groups, and ended when the
//! process that started it ends.
//!
//! A process of its own, instead of code between fork and exec: everything here is safe Rust, and affinity, group and
//! parent-death signal survive `exec`.

use std::ffi::OsString;
use std::fs;
use std::os::unix::process::CommandExt;
use std::path::PathBuf;
use std::process::Command;

use anyhow::Context;
use clap::Args;
use rustix::process::{Pid, Signal};
use rustix::thread::CpuSet;

/// Options of `heddle-lab confine`.
#[derive(Args)]
pub struct Confine {
    /// The only core to run on.
    #[arg(long)]
    core: Option<usize>,
    /// Control groups to enter.
    #[arg(long = "group", value_name = "DIR")]
    groups: Vec<PathBuf>,
    /// The process that must be alive; when it ends, so does the program.
    #[arg(long, value_name = "PID")]
    parent: i32,
    /// The program and its arguments.
    #[arg(last = true, required = true)]
    program: Vec<OsString>,
}

/// Becomes the program; returns only if that fails.
pub fn run(options: &Confine) -> anyhow::Result<()> {
    // SIGTERM and not SIGKILL: nginx's master has to stop its worker.
    rustix::process::set_parent_process_death_signal(Some(Signal::TERM))?;
    // The parent may have ended before its signal was set.
    anyhow::ensure!(
        rustix::process::getppid() == Pid::from_raw(options.parent),
        "the parent process has already ended"
    );
    if let Some(core) = options.core {
        let mut only = CpuSet::new();
        only.set(core);
        rustix::thread::sched_setaffinity(None, &only)
            .with_context(|| format!("cannot run on core {core}"))?;
    }
    for group in &options.groups {
        let file = group.join("cgroup.procs");
        fs::write(&file, "0").with_context(|| format!("cannot enter {}", group.display()))?;
    }
    let (program, arguments) = options.program.split_first().context("no program")?;
    Err(Command::new(program).args(arguments).exec())
        .with_context(|| format!("cannot run {}", program.display()))
}
