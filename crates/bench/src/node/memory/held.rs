//! Memory of proxies: their own, that of their program, and the kernel's.
//!
//! The proportional set size divides a program's pages among all processes that run it, the control plane and others on
//! the machine included. So only memory that belongs to no file is taken from it. Mapped files count once, with the
//! largest resident part of any process: as if no other process ran the program. That favours systems with many
//! processes of the same program.

use std::collections::BTreeMap;
use std::fs;

use anyhow::Context;

use super::super::figures::Figures;
use super::super::kind::Kind;
use super::super::scene::Scene;
use crate::account;

/// Memory in KiB, unless a name says bytes.
#[derive(Debug, Default, Clone, Copy)]
pub(super) struct Held {
    own: u64,
    program: u64,
    /// Proportional set sizes, and pages that no other process maps, for comparison.
    pss: u64,
    private: u64,
    /// `None`: the kernel does not count its memory here.
    kernel_bytes: Option<u64>,
    bpf_bytes: u64,
    processes: usize,
}

impl Held {
    /// Reads the memory of the proxies of a lab.
    ///
    /// # Errors
    /// When no proxy runs, or a proxy is gone.
    pub(super) fn read(scene: &Scene) -> anyhow::Result<Held> {
        let mut held = Held::default();
        let mut bpf = BTreeMap::new();
        let proxies = scene.proxies();
        anyhow::ensure!(!proxies.is_empty(), "no proxy runs");
        for pid in proxies.iter().flat_map(|(_, pid)| account::tree(*pid)) {
            let gone = || format!("process {pid} is gone");
            let rollup = fs::read_to_string(format!("/proc/{pid}/smaps_rollup"));
            let (own, pss, private) =
                parse_rollup(&rollup.with_context(gone)?).context("smaps_rollup")?;
            let status = fs::read_to_string(format!("/proc/{pid}/status")).with_context(gone)?;
            let program = kib(&status, "RssFile:").context("status")?;
            held.own += own;
            held.pss += pss;
            held.private += private;
            held.program = held.program.max(program);
            held.processes += 1;
            bpf.extend(bpf_of(pid));
        }
        held.bpf_bytes = bpf.values().sum();
        let group = match scene.kind {
            Kind::Node => "node-one/heddle",
            Kind::Direct | Kind::Pod | Kind::Envoy | Kind::Shared => "node-one/proxies",
        };
        held.kernel_bytes = scene.group(group).kernel_bytes();
        Ok(held)
    }

    /// Own, program and kernel memory together, in MiB.
    pub(super) fn mib(&self) -> f64 {
        mib((self.own + self.program) * 1024 + self.kernel())
    }

    /// The kernel's count includes maps and programs of BPF; without that count only these are known.
    fn kernel(&self) -> u64 {
        self.kernel_bytes.unwrap_or(self.bpf_bytes)
    }

    /// Adds the figures of this reading.
    pub(super) fn note(&self, figures: &mut Figures, (kind, at, round): (Kind, u32, usize)) {
        for (name, value) in [
            ("mib", self.mib()),
            ("own_mib", mib(self.own * 1024)),
            ("program_mib", mib(self.program * 1024)),
            ("pss_mib", mib(self.pss * 1024)),
            ("private_mib", mib(self.private * 1024)),
            ("kernel_mib", mib(self.kernel())),
            ("bpf_mib", mib(self.bpf_bytes)),
            ("processes", self.processes as f64),
        ] {
            figures.add(name, kind, at, round, value);
        }
    }
}

fn mib(bytes: u64) -> f64 {
    bytes as f64 / f64::from(1 << 20)
}

/// Memory that belongs to no file, the whole proportional set, and pages that no other process maps.
fn parse_rollup(text: &str) -> Option<(u64, u64, u64)> {
    let own = kib(text, "Pss_Anon:")? + kib(text, "Pss_Shmem:").unwrap_or(0);
    let private = kib(text, "Private_Clean:")? + kib(text, "Private_Dirty:")?;
    Some((own, kib(text, "Pss:")?, private))
}

fn kib(text: &str, name: &str) -> Option<u64> {
    let line = text.lines().find_map(|line| line.strip_prefix(name))?;
    line.split_ascii_whitespace().next()?.parse().ok()
}

/// BPF maps and programs that a process has open, with their bytes.
fn bpf_of(pid: u32) -> BTreeMap<(&'static str, u64), u64> {
    let entries = fs::read_dir(format!("/proc/{pid}/fdinfo"));
    let infos = entries.into_iter().flatten().flatten();
    infos
        .filter_map(|entry| parse_bpf(&fs::read_to_string(entry.path()).ok()?))
        .collect()
}

fn parse_bpf(fdinfo: &str) -> Option<((&'static str, u64), u64)> {
    let number = |name: &str| kib(fdinfo, name);
    let bytes = number("memlock:")?;
    let id = match number("map_id:") {
        Some(id) => ("map", id),
        None => ("program", number("prog_id:")?),
    };
    Some((id, bytes))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_map_is_counted_once_however_often_it_is_open() {
        let map = "pos:\t0\nmap_type:\t1\nmemlock:\t8192\nmap_id:\t7\n";
        let program = "prog_type:\t8\nmemlock:\t4096\nprog_id:\t7\n";
        assert_eq!(parse_bpf(map), Some((("map", 7), 8192)));
        assert_eq!(parse_bpf(program), Some((("program", 7), 4096)));
        assert_eq!(parse_bpf("pos:\t0\nflags:\t02\n"), None);
    }

    #[test]
    fn files_are_left_out_of_what_is_a_process_own() {
        let text = "Rss:  900 kB\nPss:  500 kB\nPss_Anon:  300 kB\nPss_File:  200 kB\nPss_Shmem:  4 kB\n\
             Private_Clean:  40 kB\nPrivate_Dirty:  290 kB\n";
        assert_eq!(parse_rollup(text), Some((304, 500, 330)));
    }
}
