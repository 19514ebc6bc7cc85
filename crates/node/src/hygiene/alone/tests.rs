use std::env;
use std::io::ErrorKind;
use std::os::unix::process::CommandExt;
use std::process::Command;
use std::thread;

use rustix::io::Errno;
use rustix::process::{Signal, parent_process_death_signal, set_parent_process_death_signal};

use super::super::end_with_parent;
use super::stay_alone;

/// Set in the process that makes the attempts.
const TRIES: &str = "HEDDLE_TEST_STAYS_ALONE";

/// Tries every way that the standard library has: posix_spawn, fork, and exec in place.
fn starts_nothing() {
    let program = || Command::new("/bin/true");
    let own = rustix::process::getuid().as_raw();
    let tried = [
        ("spawned", program().spawn().map(drop)),
        ("forked", program().uid(own).spawn().map(drop)),
        ("in its own place", Err(program().exec())),
    ];
    for (how, tried) in tried {
        let error = tried.expect_err(how);
        assert_eq!(error.kind(), ErrorKind::PermissionDenied, "{how}: {error}");
    }
}

/// The parent-death signal cannot be changed any more.
fn stays_with_its_parent() {
    for signal in [None, Some(Signal::HUP)] {
        let tried = set_parent_process_death_signal(signal);
        assert_eq!(tried, Err(Errno::PERM), "{signal:?}");
    }
}

#[test]
fn a_process_that_stays_alone_starts_nothing_but_threads() {
    if env::var_os(TRIES).is_none() {
        // Runs in a process of its own: a successful exec would replace the test program.
        let (_, module) = module_path!()
            .split_once("::")
            .expect("a crate and a module");
        let test = format!("{module}::a_process_that_stays_alone_starts_nothing_but_threads");
        let mut again = Command::new(env::current_exe().expect("this program"));
        again.args(["--exact", &test, "--nocapture"]).env(TRIES, "");
        let said = again.output().expect("it runs");
        let text = String::from_utf8_lossy(&said.stdout);
        assert!(said.status.success(), "{said:?}");
        // If exec had replaced the test program, this line would be missing.
        assert!(text.contains("1 passed"), "{text}");
        return;
    }
    assert!(Command::new("/bin/true").status().is_ok(), "until then");
    end_with_parent().expect("the kernel agrees");
    if !stay_alone().expect("no failure") {
        heddle_skips::skipped("this kernel has no seccomp filters");
        return;
    }
    starts_nothing();
    stays_with_its_parent();
    assert_eq!(parent_process_death_signal(), Ok(Some(Signal::KILL)));
    let threads = thread::spawn(|| thread::spawn(starts_nothing).join());
    assert!(threads.join().is_ok_and(|inner| inner.is_ok()));
    assert!(stay_alone().expect("and again"));
}
