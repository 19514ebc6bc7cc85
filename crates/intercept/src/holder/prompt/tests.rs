use std::io::Write;
use std::thread;

use super::go_first;

/// By which rules this thread gets its turn (proc(5), the 41st field of `stat`).
fn policy() -> libc::c_int {
    let stat = std::fs::read_to_string("/proc/thread-self/stat").unwrap();
    let (_, after_name) = stat.rsplit_once(')').unwrap();
    after_name
        .split_whitespace()
        .nth(38)
        .unwrap()
        .parse()
        .unwrap()
}

#[test]
fn a_holder_goes_first_and_what_it_starts_does_not() {
    let thread = thread::spawn(|| {
        if let Err(error) = go_first() {
            let _ = writeln!(
                std::io::stderr(),
                "SKIPPED, nothing was proven: no thread may go first here: {error}"
            );
            return;
        }
        assert_eq!(policy(), libc::SCHED_RR);
        let started = thread::spawn(policy).join().unwrap();
        assert_eq!(started, libc::SCHED_OTHER);
    });
    thread.join().unwrap();
}
