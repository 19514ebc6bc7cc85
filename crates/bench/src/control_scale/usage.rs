//! What the processes use while changes come: CPU in the window, and memory.

use std::fs;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use anyhow::Context;
use rustix::time::{ClockId, clock_gettime};

use crate::account::{self, Memory, Reading};

/// How often memory is read.
const LOOK_EVERY: Duration = Duration::from_millis(500);

/// Cores in use, and memory in MiB.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Usage {
    pub(super) control_cores: f64,
    /// etcd, and what is between it and the control plane.
    pub(super) store_cores: f64,
    /// This process: the nodes, and the writer of changes.
    pub(super) bench_cores: f64,
    /// Private memory of the control plane, and its proportional set: the most of all looks.
    pub(super) private_mib: f64,
    pub(super) pss_mib: f64,
    /// The most resident memory that it has had since its start, between two looks, too.
    pub(super) high_water_mib: f64,
}

/// Looks at the processes in a thread of its own: reading the memory of a large process takes milliseconds.
pub(super) struct UsageWatch {
    thread: JoinHandle<anyhow::Result<Usage>>,
    is_over: Arc<AtomicBool>,
}

impl UsageWatch {
    /// Begins to look; CPU counts within the window.
    ///
    /// # Errors
    /// When no thread can be started.
    pub(super) fn begin(
        (control, store): (u32, Vec<u32>),
        window: (Instant, Instant),
    ) -> anyhow::Result<UsageWatch> {
        let is_over = Arc::new(AtomicBool::new(false));
        let over = Arc::clone(&is_over);
        let thread = thread::Builder::new()
            .name("usage".to_owned())
            .spawn(move || look((control, &store), window, &over))?;
        Ok(UsageWatch { thread, is_over })
    }

    /// Ends looking.
    ///
    /// # Errors
    /// When a process is gone.
    pub(super) fn end(self) -> anyhow::Result<Usage> {
        self.is_over.store(true, Ordering::Relaxed);
        self.thread.thread().unpark();
        let looked = self.thread.join();
        looked.ok().context("the thread that looks panicked")?
    }
}

fn look(
    (control, store): (u32, &[u32]),
    (from, to): (Instant, Instant),
    is_over: &AtomicBool,
) -> anyhow::Result<Usage> {
    let mut most = Memory::default();
    let mut look = |until: Instant| -> anyhow::Result<()> {
        while !is_over.load(Ordering::Relaxed) {
            let memory = account::memory(control)?;
            most.private_kib = most.private_kib.max(memory.private_kib);
            most.pss_kib = most.pss_kib.max(memory.pss_kib);
            let left = until.saturating_duration_since(Instant::now());
            if left.is_zero() {
                break;
            }
            thread::park_timeout(left.min(LOOK_EVERY));
        }
        Ok(())
    };
    look(from)?;
    let (began, before) = (Instant::now(), Used::now(control, store)?);
    look(to)?;
    let (ended, after) = (Instant::now(), Used::now(control, store)?);
    // What is still on its way may take memory, too.
    look(ended + Duration::from_secs(3_600))?;
    let seconds = (ended - began).as_secs_f64();
    let cores = |before: &Reading, after: &Reading| {
        account::between(before, after).cpu_ns as f64 / 1e9 / seconds
    };
    let store = before.store.iter().zip(&after.store);
    Ok(Usage {
        control_cores: cores(&before.control, &after.control),
        store_cores: store.map(|(before, after)| cores(before, after)).sum(),
        bench_cores: (after.bench - before.bench).as_secs_f64() / seconds,
        private_mib: most.private_kib as f64 / 1024.0,
        pss_mib: most.pss_kib as f64 / 1024.0,
        high_water_mib: high_water_kib(control).context("VmHWM")? / 1024.0,
    })
}

fn high_water_kib(pid: u32) -> Option<f64> {
    let status = fs::read_to_string(format!("/proc/{pid}/status")).ok()?;
    let line = status
        .lines()
        .find_map(|line| line.strip_prefix("VmHWM:"))?;
    line.split_ascii_whitespace().next()?.parse().ok()
}

/// CPU time up to one moment.
struct Used {
    control: Reading,
    store: Vec<Reading>,
    /// Of this process, threads that have ended included.
    bench: Duration,
}

impl Used {
    fn now(control: u32, store: &[u32]) -> anyhow::Result<Used> {
        let bench = clock_gettime(ClockId::ProcessCPUTime);
        Ok(Used {
            control: account::read(control)?,
            store: store
                .iter()
                .map(|pid| account::read(*pid))
                .collect::<anyhow::Result<_>>()?,
            bench: Duration::try_from(bench).context("CPU time")?,
        })
    }
}
