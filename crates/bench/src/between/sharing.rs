//! How soon a second Worker carries its share.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::Context;

use crate::account;

/// The interval between two looks at the Workers' CPU time.
const LOOK: Duration = Duration::from_millis(100);
/// The number of looks over which Workers are compared.
const OVER: usize = 5;
/// Workers share the work when the less busy one uses this fraction of the CPU time of the busier one …
const PART: f64 = 0.5;
/// and more than this many nanoseconds for each look.
const LEAST_NS: u64 = 5_000_000;

/// CPU time of each Worker between the last looks.
#[derive(Debug, Default)]
pub(super) struct Sharing {
    looks: VecDeque<Vec<u64>>,
}

impl Sharing {
    /// Adds the CPU time that each Worker has used since the last look. Returns whether they share the work.
    fn look(&mut self, used_ns: Vec<u64>) -> bool {
        self.looks.push_back(used_ns);
        if self.looks.len() > OVER {
            self.looks.pop_front();
        }
        let workers = self.looks.iter().map(Vec::len).min().unwrap_or(0);
        if self.looks.len() < OVER || workers < 2 {
            return false;
        }
        let sums = (0..workers).map(|one| self.looks.iter().map(|look| look[one]).sum());
        let sums: Vec<u64> = sums.collect();
        let (most, least) = (sums.iter().max(), sums.iter().min());
        let (Some(&most), Some(&least)) = (most, least) else {
            return false;
        };
        least > LEAST_NS * OVER as u64 && least as f64 >= PART * most as f64
    }
}

/// After how many seconds there was a second Worker, and after how many it carried its share. Both count from just
/// before the load generator's process is started: some milliseconds before its first request.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Times {
    pub(super) grown_s: Option<f64>,
    pub(super) shared_s: Option<f64>,
}

/// Runs `happens` and meanwhile watches the Workers of a process. Returns the result, and the times that were seen.
pub(super) fn watched<T>(
    pid: u32,
    mut sharing: Sharing,
    happens: impl FnOnce() -> anyhow::Result<T>,
) -> anyhow::Result<(T, Times)> {
    let over = AtomicBool::new(false);
    let began = Instant::now();
    thread::scope(|scope| {
        let watcher = scope.spawn(|| {
            let mut times = Times::default();
            let mut before = account::read(pid).ok()?;
            while !over.load(Ordering::Relaxed) {
                thread::park_timeout(LOOK);
                let now = account::read(pid).ok()?;
                let threads = account::by_thread(pid, &before, &now);
                let workers = threads
                    .iter()
                    .filter(|(name, _)| name.starts_with("worker-"));
                let used_ns: Vec<u64> = workers.map(|(_, ns)| *ns).collect();
                let elapsed_s = began.elapsed().as_secs_f64();
                if used_ns.len() > 1 {
                    times.grown_s.get_or_insert(elapsed_s);
                }
                if sharing.look(used_ns) {
                    times.shared_s = Some(elapsed_s);
                    break;
                }
                before = now;
            }
            Some(times)
        });
        let happened = happens();
        over.store(true, Ordering::Relaxed);
        let times = watcher.join().ok().context("the watcher panicked")?;
        Ok((happened?, times.unwrap_or_default()))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: u64 = 1_000_000;

    #[test]
    fn work_is_shared_when_the_second_worker_does_half_of_what_the_first_does() {
        let mut sharing = Sharing::default();
        assert!((0..10).all(|_| !sharing.look(vec![90 * MS])), "one alone");
        assert!((0..10).all(|_| !sharing.look(vec![90 * MS, MS])));
        let looks = (0..10).take_while(|_| !sharing.look(vec![50 * MS, 45 * MS]));
        assert_eq!(looks.count(), 3);
        // Both are nearly idle.
        let mut sharing = Sharing::default();
        assert!((0..10).all(|_| !sharing.look(vec![MS, MS])));
    }
}
