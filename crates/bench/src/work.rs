//! The CPU work of an application, for answers that are to cost some.

use std::time::Duration;

/// Keeps this thread busy for `time` of its own CPU time. That clock stands still while a quota stops the thread, so
/// that the work is the same however small the quota is.
pub(crate) fn work(time: Duration) {
    if time.is_zero() {
        return;
    }
    let until = thread_time() + time;
    while thread_time() < until {
        std::hint::spin_loop();
    }
}

/// CPU time of this thread so far.
fn thread_time() -> Duration {
    let time = rustix::time::clock_gettime(rustix::time::ClockId::ThreadCPUTime);
    Duration::try_from(time).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn work_takes_the_cpu_time_that_it_is_given() {
        let start = thread_time();
        work(Duration::from_millis(2));
        assert!(thread_time() - start >= Duration::from_millis(2));
        work(Duration::ZERO);
    }
}
