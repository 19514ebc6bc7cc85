//! The machine that figures were measured on, and a network namespace of our own on it.
//!
//! A namespace has a loopback interface that no other process uses, and a congestion control of its own: with
//! BBR, a common default, the kernel paces even loopback with a timer per packet, which says nothing about
//! proxies.

use std::fs;
use std::os::unix::process::CommandExt;
use std::process::Command;

use anyhow::Context;
use serde::Serialize;

/// What a reader has to know of a machine to judge its figures.
#[derive(Debug, Clone, Serialize, Default)]
pub(super) struct Machine {
    pub(super) cpu: String,
    pub(super) cores: usize,
    pub(super) memory_mib: u64,
    pub(super) kernel: String,
    pub(super) congestion_control: String,
    pub(super) irq_time_accounting: IrqTimeAccounting,
}

/// Whether the kernel takes the time of interrupts out of the CPU time of the process that was running. CPU time of a
/// request can be compared only between machines with the same setting: packets that arrive from a network are handled
/// in interrupts.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Default)]
pub(super) enum IrqTimeAccounting {
    #[serde(rename = "y")]
    Apart,
    #[serde(rename = "n")]
    WithTheProcess,
    /// The kernel's configuration cannot be read here, or does not say.
    #[default]
    #[serde(rename = "unknown")]
    Unknown,
}

const CONGESTION_CONTROL: &str = "/proc/sys/net/ipv4/tcp_congestion_control";

impl Machine {
    /// Prepares this machine for an experiment. Where a network namespace of our own is allowed, the program starts
    /// again in it, `isolated`, and only that process returns from here.
    ///
    /// # Errors
    /// When the program cannot be started again, or `/proc` cannot be read.
    pub(super) fn prepare(isolated: bool) -> anyhow::Result<Machine> {
        if !isolated {
            enter_own_network()?;
        }
        let mut machine = Machine::describe()?;
        if isolated {
            machine.congestion_control = use_plain_congestion_control()?;
        }
        Ok(machine)
    }

    /// Describes this machine.
    ///
    /// # Errors
    /// When `/proc` cannot be read.
    pub(super) fn describe() -> anyhow::Result<Machine> {
        let cpu = fs::read_to_string("/proc/cpuinfo").context("/proc/cpuinfo")?;
        let memory = fs::read_to_string("/proc/meminfo").context("/proc/meminfo")?;
        let number = |text: &str| text.split_ascii_whitespace().next()?.parse::<u64>().ok();
        Ok(Machine {
            cpu: value(&cpu, "model name").unwrap_or("unknown").to_owned(),
            cores: std::thread::available_parallelism()?.get(),
            memory_mib: value(&memory, "MemTotal").and_then(number).unwrap_or(0) / 1024,
            kernel: rustix::system::uname()
                .release()
                .to_string_lossy()
                .into_owned(),
            congestion_control: congestion_control(),
            irq_time_accounting: kernel_configuration()
                .map_or(IrqTimeAccounting::Unknown, |text| {
                    IrqTimeAccounting::of(&text)
                }),
        })
    }
}

impl IrqTimeAccounting {
    /// The setting in this configuration of a kernel.
    fn of(configuration: &str) -> IrqTimeAccounting {
        let is = |line| configuration.lines().any(|one| one == line);
        if is("CONFIG_IRQ_TIME_ACCOUNTING=y") {
            IrqTimeAccounting::Apart
        } else if is("# CONFIG_IRQ_TIME_ACCOUNTING is not set") {
            IrqTimeAccounting::WithTheProcess
        } else {
            IrqTimeAccounting::Unknown
        }
    }
}

/// The configuration that this kernel was built with, from `/proc` or from the file of its package.
fn kernel_configuration() -> Option<String> {
    let unpacked = Command::new("zcat").arg("/proc/config.gz").output();
    let unpacked = unpacked.ok().filter(|output| output.status.success());
    let text = unpacked.and_then(|output| String::from_utf8(output.stdout).ok());
    text.or_else(|| {
        let release = rustix::system::uname();
        let release = release.release().to_str().ok()?;
        fs::read_to_string(format!("/boot/config-{release}")).ok()
    })
}

/// The first value of `name : value`.
fn value<'text>(text: &'text str, name: &str) -> Option<&'text str> {
    text.lines()
        .filter_map(|line| line.split_once(':'))
        .find_map(|(key, value)| (key.trim() == name).then_some(value.trim()))
}

fn congestion_control() -> String {
    fs::read_to_string(CONGESTION_CONTROL)
        .unwrap_or_default()
        .trim()
        .to_owned()
}

/// As root, starts this program again in a network namespace of its own and does not return; otherwise,
/// or where that is not allowed, returns and the experiment uses the machine's loopback.
///
/// # Errors
/// When the program cannot be started again.
fn enter_own_network() -> anyhow::Result<()> {
    let allowed = Command::new("unshare").args(["--net", "true"]).output();
    let allowed = allowed.is_ok_and(|output| output.status.success());
    if !rustix::process::geteuid().is_root() || !allowed {
        return Ok(());
    }
    let program = std::env::current_exe()?;
    let arguments = std::env::args_os().skip(1);
    let mut again = Command::new("unshare");
    again
        .args(["--net", "--"])
        .arg(program)
        .args(arguments)
        .arg("--isolated");
    Err(again.exec()).context("cannot start again in a network namespace")
}

/// Brings up the loopback interface of our namespace, and replaces BBR; returns the congestion control that is used
/// then.
///
/// # Errors
/// When the interface does not come up.
fn use_plain_congestion_control() -> anyhow::Result<String> {
    let up = Command::new("ip")
        .args(["link", "set", "lo", "up"])
        .status()
        .context("ip")?;
    anyhow::ensure!(up.success(), "the loopback interface does not come up");
    // A namespace may only choose an algorithm that its host offers to all users, as it always does Reno. Without loss,
    // Cubic and Reno behave the same.
    if fs::write(CONGESTION_CONTROL, "cubic").is_err() {
        fs::write(CONGESTION_CONTROL, "reno").context(CONGESTION_CONTROL)?;
    }
    Ok(congestion_control())
}

#[cfg(test)]
mod tests;
