//! The cost of what a node has beside its proxy: the holder, the control plane, and the hooks in the kernel.
//!
//! Holder and control plane: memory and CPU time of the process alone, at rest and under the load at which systems are
//! compared. Hooks: the kernel's own statistics of its BPF programs, which it keeps only on request, therefore in
//! windows of their own: the time for a request on keepalive connections, the time of a single run, and the time for a
//! connection that carries one request.

use std::collections::BTreeMap;
use std::fs;
use std::thread;
use std::time::{Duration, Instant};

use anyhow::Context;

use super::scene::Scene;
use crate::account::{self, Memory};
use crate::findings::Findings;

/// The switch for the kernel's statistics of BPF programs.
const BPF_STATS: &str = "/proc/sys/kernel/bpf_stats_enabled";
/// Connections that carry one request each.
const SHORT: u32 = 400;

/// CPU time and memory of a process without its children.
struct Taken {
    cpu_ms_per_s: f64,
    memory: Memory,
}

/// Runs of BPF programs, and the time that they took.
#[derive(Debug, Default, Clone, Copy, PartialEq)]
struct Runs {
    count: u64,
    ns: u64,
}

/// Measures the cost of what is beside the proxy in the lab of a node, and reports it.
///
/// # Errors
/// When a process is gone, or no load could be offered.
pub(super) fn run(
    scene: &Scene,
    rate: u32,
    seconds: u32,
    findings: &mut Findings,
) -> anyhow::Result<()> {
    eprintln!("beside the proxy: at rest, under load, hooks");
    let offered = rate.to_string();
    let length = seconds.to_string();
    let load = ["--connections", "32", "--rate", &offered];
    let load = [&load[..], &["--seconds", &length, "--body-bytes", "1024"]].concat();
    let rest = taken(scene, || {
        thread::park_timeout(Duration::from_secs(seconds.into()));
        Ok(())
    })?;
    let busy = taken(scene, || scene.measure("near0", &load).map(drop))?;
    findings.say("\nBeside the node's proxy: memory, and processor time at rest and under load");
    for (name, rest, busy) in [
        ("holder", rest.holder, busy.holder),
        ("control", rest.control, busy.control),
    ] {
        let mib = |kib: u64| kib as f64 / 1024.0;
        findings.say(format!(
            "  {name:8} {:.1} MiB resident, {:.1} private ({:.1} and {:.1} under load); {:.2} ms of CPU a second at rest, \
             {:.2} at {rate} requests/s",
            mib(rest.memory.rss_kib),
            mib(rest.memory.private_kib),
            mib(busy.memory.rss_kib),
            mib(busy.memory.private_kib),
            rest.cpu_ms_per_s,
            busy.cpu_ms_per_s,
        ));
        for (figure, value) in [
            ("mib", mib(rest.memory.rss_kib)),
            ("private_mib", mib(rest.memory.private_kib)),
            ("busy_mib", mib(busy.memory.rss_kib)),
            ("busy_private_mib", mib(busy.memory.private_kib)),
            ("cpu_ms_per_s", rest.cpu_ms_per_s),
            ("busy_cpu_ms_per_s", busy.cpu_ms_per_s),
        ] {
            findings.value(format!("{name}_{figure}"), Some(value));
        }
    }
    match hooks(scene, &load) {
        Ok(hooks) => hooks.tell(findings),
        Err(error) => findings.problem(format!("Hooks were not measured: {error:#}")),
    }
    Ok(())
}

/// A value for each of the two processes beside the proxy.
struct Beside<T> {
    holder: T,
    control: T,
}

/// CPU time and memory of both while `happens` runs.
fn taken(
    scene: &Scene,
    happens: impl FnOnce() -> anyhow::Result<()>,
) -> anyhow::Result<Beside<Taken>> {
    let pids = Beside {
        holder: scene.process("heddle node one")?,
        control: scene.process("heddle control")?,
    };
    let began = Instant::now();
    let before = [pids.holder, pids.control].map(account::cpu_ns_alone);
    happens()?;
    let seconds = began.elapsed().as_secs_f64();
    let one = |pid: u32, before: anyhow::Result<u64>| {
        let used_ns = account::cpu_ns_alone(pid)?.saturating_sub(before?);
        anyhow::Ok(Taken {
            cpu_ms_per_s: used_ns as f64 / 1e6 / seconds,
            memory: account::memory_alone(pid)?,
        })
    };
    let [of_holder, of_control] = before;
    Ok(Beside {
        holder: one(pids.holder, of_holder)?,
        control: one(pids.control, of_control)?,
    })
}

#[derive(Debug, PartialEq)]
struct HookCost {
    us_per_request: f64,
    runs_per_request: f64,
    ns_per_run: f64,
    us_per_connection: f64,
}

fn hooks(scene: &Scene, load: &[&str]) -> anyhow::Result<HookCost> {
    let _counting = Counting::start()?;
    let start = programs(scene);
    anyhow::ensure!(
        !start.is_empty(),
        "the kernel shows no program of this node"
    );
    let kept = scene.measure("near0", load)?.requests;
    let middle = programs(scene);
    let count = SHORT.to_string();
    let short = ["--connections", &count, "--requests", &count];
    let target = scene.target("near0")?;
    let short = scene.load(&[target], &[&short[..], &["--body-bytes", "1024"]].concat())?;
    anyhow::ensure!(short.errors.is_empty(), "{:?}", short.errors);
    let end = programs(scene);
    Ok(HookCost::of(
        (since(&start, &middle), kept),
        (since(&middle, &end), short.requests),
    ))
}

impl HookCost {
    /// From the runs for requests on keepalive connections, and for connections with one request each.
    fn of((kept, requests): (Runs, u64), (short, connections): (Runs, u64)) -> HookCost {
        let each = |all: u64, count: u64| all as f64 / count.max(1) as f64;
        HookCost {
            us_per_request: each(kept.ns, requests) / 1e3,
            runs_per_request: each(kept.count, requests),
            ns_per_run: each(kept.ns, kept.count),
            us_per_connection: each(short.ns, connections) / 1e3,
        }
    }

    fn tell(&self, findings: &mut Findings) {
        findings.say(format!(
            "  hooks    {:.2} µs for a request on connections that are kept: {:.1} runs of {:.0} ns; {:.2} µs for a \
             connection with one request",
            self.us_per_request, self.runs_per_request, self.ns_per_run, self.us_per_connection
        ));
        findings.value("hooks_us_per_request", Some(self.us_per_request));
        findings.value("hooks_runs_per_request", Some(self.runs_per_request));
        findings.value("hooks_ns_per_run", Some(self.ns_per_run));
        findings.value("hooks_us_per_connection", Some(self.us_per_connection));
    }
}

/// Makes the kernel keep statistics of BPF programs as long as this value lives.
struct Counting {
    before: String,
}

impl Counting {
    fn start() -> anyhow::Result<Counting> {
        let before = fs::read_to_string(BPF_STATS).context(BPF_STATS)?;
        fs::write(BPF_STATS, "1").context(BPF_STATS)?;
        Ok(Counting { before })
    }
}

impl Drop for Counting {
    fn drop(&mut self) {
        // The first write succeeded; if this one fails, the kernel keeps counting, which costs little.
        let _restored = fs::write(BPF_STATS, self.before.trim());
    }
}

/// BPF programs that the node's processes have open, with their runs so far.
fn programs(scene: &Scene) -> BTreeMap<u64, Runs> {
    let proxies = scene.proxies();
    let pids = proxies.iter().flat_map(|(_, pid)| account::tree(*pid));
    let infos = pids.flat_map(|pid| fs::read_dir(format!("/proc/{pid}/fdinfo")));
    let infos = infos.flatten().flatten();
    infos
        .filter_map(|entry| parse(&fs::read_to_string(entry.path()).ok()?))
        .collect()
}

fn parse(fdinfo: &str) -> Option<(u64, Runs)> {
    let number = |name: &str| -> Option<u64> {
        let line = fdinfo.lines().find_map(|line| line.strip_prefix(name))?;
        line.trim().parse().ok()
    };
    let runs = Runs {
        count: number("run_cnt:")?,
        ns: number("run_time_ns:")?,
    };
    Some((number("prog_id:")?, runs))
}

/// All runs between two moments.
fn since(start: &BTreeMap<u64, Runs>, end: &BTreeMap<u64, Runs>) -> Runs {
    let mut all = Runs::default();
    for (id, end) in end {
        let start = start.get(id).copied().unwrap_or_default();
        all.count += end.count.saturating_sub(start.count);
        all.ns += end.ns.saturating_sub(start.ns);
    }
    all
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_program_says_how_often_it_ran_and_for_how_long() {
        let text =
            "pos:\t0\nprog_type:\t3\nmemlock:\t4096\nprog_id:\t7\nrun_time_ns:\t900\nrun_cnt:\t3\n";
        assert_eq!(parse(text), Some((7, Runs { count: 3, ns: 900 })));
        assert_eq!(parse("map_type:\t1\nmap_id:\t7\n"), None);
        let runs = |count, ns| Runs { count, ns };
        let start = BTreeMap::from([(7, runs(3, 900))]);
        let end = BTreeMap::from([(7, runs(5, 1_100)), (8, runs(1, 50))]);
        assert_eq!(since(&start, &end), runs(3, 250));
    }

    #[test]
    fn hooks_are_charged_to_requests_and_to_connections() {
        let kept = Runs {
            count: 400,
            ns: 80_000,
        };
        let short = Runs {
            count: 90,
            ns: 30_000,
        };
        let expected = HookCost {
            us_per_request: 0.8,
            runs_per_request: 4.0,
            ns_per_run: 200.0,
            us_per_connection: 3.0,
        };
        assert_eq!(HookCost::of((kept, 100), (short, 10)), expected);
    }
}
