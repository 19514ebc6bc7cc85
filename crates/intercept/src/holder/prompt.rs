//! The holder's turn on a busy machine.

use std::io;

#[cfg(test)]
mod tests;

/// The lowest of priorities that go before everything without one (sched(7)).
const LOWEST: libc::c_int = 1;

/// Lets this thread run before all that have no priority of their own: when a proxy dies, what pods dial is waiting for
/// this thread's store in a table, and must not wait for its turn. Processes and threads that it starts have no
/// priority.
///
/// # Errors
/// Without CAP_SYS_NICE, or where a control group gives its processes no such time.
pub fn go_first() -> io::Result<()> {
    let priority = libc::sched_param {
        sched_priority: LOWEST,
    };
    let policy = libc::SCHED_RR | libc::SCHED_RESET_ON_FORK;
    #[allow(unsafe_code, reason = "no crate used here knows this call")]
    // SAFETY: 0 is this thread; the pointer is to a variable of this function, which the kernel reads.
    let failed = unsafe { libc::sched_setscheduler(0, policy, &raw const priority) };
    match failed {
        0 => Ok(()),
        _ => Err(io::Error::last_os_error()),
    }
}
