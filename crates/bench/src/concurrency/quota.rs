//! The CPU time that a provider gets: the quota of its control group, and how often it was used up.

use std::fs;
use std::path::Path;

use anyhow::Context;

/// The period of quotas, in microseconds. It is what containers have by default.
const PERIOD_US: u64 = 100_000;
/// The smallest quota that the kernel accepts, in microseconds.
const LEAST_US: u64 = 1_000;
/// The same, in cores.
pub(super) const LEAST: f64 = LEAST_US as f64 / PERIOD_US as f64;

/// The kernel's counters of a group with a quota.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) struct Periods {
    /// Periods in which the group had runnable processes.
    all: u64,
    /// Periods in which the group used up its quota.
    throttled: u64,
}

/// Limits a group to `cores` cores, through cgroup v2 or v1's `cpu` controller. Returns the limit that was set: at
/// least the kernel's smallest quota.
///
/// # Errors
/// When the kernel refuses.
pub(super) fn hold(group: &Path, cores: f64) -> anyhow::Result<f64> {
    let quota_us = ((cores * PERIOD_US as f64).round() as u64).max(LEAST_US);
    let write = |file: &str, text: String| {
        let path = group.join(file);
        fs::write(&path, &text)
            .with_context(|| format!("cannot write {text} to {}", path.display()))
    };
    if group.join("cpu.max").exists() {
        write("cpu.max", format!("{quota_us} {PERIOD_US}"))?;
    } else {
        write("cpu.cfs_period_us", PERIOD_US.to_string())?;
        write("cpu.cfs_quota_us", quota_us.to_string())?;
    }
    Ok(quota_us as f64 / PERIOD_US as f64)
}

impl Periods {
    /// Reads what was counted so far.
    ///
    /// # Errors
    /// When `cpu.stat` cannot be read.
    pub(super) fn of(group: &Path) -> anyhow::Result<Periods> {
        let file = group.join("cpu.stat");
        let text = fs::read_to_string(&file).with_context(|| file.display().to_string())?;
        Ok(Periods::parse(&text))
    }

    fn parse(text: &str) -> Periods {
        let field = |name: &str| {
            let of = |line: &str| line.strip_prefix(name)?.trim().parse().ok();
            text.lines().find_map(of).unwrap_or(0)
        };
        Periods {
            all: field("nr_periods "),
            throttled: field("nr_throttled "),
        }
    }

    /// Fraction of the periods since `start` in which the quota was used up.
    pub(super) fn throttled_since(&self, start: &Periods) -> f64 {
        let all = self.all.saturating_sub(start.all);
        let throttled = self.throttled.saturating_sub(start.throttled);
        if all == 0 {
            0.0
        } else {
            throttled as f64 / all as f64
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_throttled_is_a_part_of_the_periods() {
        let start = Periods::parse("nr_periods 10\nnr_throttled 4\nthrottled_time 123\n");
        let end = Periods::parse("usage_usec 7\nnr_periods 30\nnr_throttled 9\nthrottled_usec 5\n");
        assert_eq!(end.throttled_since(&start), 0.25);
        assert_eq!(start.throttled_since(&start), 0.0);
        assert_eq!(Periods::parse(""), Periods::default());
    }

    #[test]
    fn a_quota_is_written_as_either_version_takes_it_and_is_not_below_the_least() {
        let v2 = tempfile::tempdir().expect("a folder");
        fs::write(v2.path().join("cpu.max"), "max 100000").expect("write");
        assert_eq!(hold(v2.path(), 0.05).expect("held"), 0.05);
        let read = |dir: &Path, file| fs::read_to_string(dir.join(file)).expect("read");
        assert_eq!(read(v2.path(), "cpu.max"), "5000 100000");
        let v1 = tempfile::tempdir().expect("a folder");
        assert_eq!(hold(v1.path(), 0.001).expect("held"), 0.01);
        assert_eq!(read(v1.path(), "cpu.cfs_period_us"), "100000");
        assert_eq!(read(v1.path(), "cpu.cfs_quota_us"), "1000");
    }
}
