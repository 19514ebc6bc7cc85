//! Chooses processors for workloads' commands: those that no Worker is pinned to.

use rustix::thread::CpuSet;

/// `allowed` without the Workers' processors; `None` when that changes nothing, or leaves none.
fn without(allowed: CpuSet, workers: &[usize]) -> Option<CpuSet> {
    let mut left = allowed;
    for &cpu in workers.iter().filter(|&&cpu| cpu < CpuSet::MAX_CPU) {
        left.unset(cpu);
    }
    (left != allowed && left.count() > 0).then_some(left)
}

/// Processors for commands when Workers are pinned to `workers`; `None` for any.
pub(super) fn for_commands(workers: &[usize]) -> Option<CpuSet> {
    if workers.is_empty() {
        return None;
    }
    let allowed = rustix::thread::sched_getaffinity(None).ok()?;
    let left = without(allowed, workers);
    match &left {
        Some(left) => tracing::info!(
            "commands run on the {} processors that no worker is pinned to",
            left.count()
        ),
        None => tracing::warn!(
            "proxy.workers.cpus leaves no other processor for commands: they share those of the workers"
        ),
    }
    left
}

#[cfg(test)]
mod tests {
    use super::*;

    fn set(cpus: &[usize]) -> CpuSet {
        let mut set = CpuSet::new();
        cpus.iter().for_each(|&cpu| set.set(cpu));
        set
    }

    #[test]
    fn commands_run_where_no_worker_is_kept() {
        assert_eq!(without(set(&[0, 1, 2, 3]), &[2, 3]), Some(set(&[0, 1])));
        assert_eq!(without(set(&[0, 1]), &[1, 7, 100_000]), Some(set(&[0])));
    }

    #[test]
    fn they_run_anywhere_rather_than_nowhere() {
        assert_eq!(without(set(&[0, 1]), &[0, 1]), None);
        assert_eq!(without(set(&[0, 1]), &[2]), None);
        assert_eq!(without(set(&[]), &[2]), None);
    }
}
