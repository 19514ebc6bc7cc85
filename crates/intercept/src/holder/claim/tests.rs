use std::process::{Child, Command, Stdio};

use super::*;

/// A process that runs for a long time.
struct Sleeper(Child);

impl Sleeper {
    fn start() -> Sleeper {
        Sleeper::start_for("600")
    }

    fn start_for(seconds: &str) -> Sleeper {
        let mut command = Command::new("sleep");
        let child = command.arg(seconds).stdout(Stdio::null()).spawn();
        Sleeper(child.unwrap())
    }

    fn pid(&self) -> Pid {
        Pid::from_child(&self.0)
    }

    fn is_there(&mut self) -> bool {
        self.0.try_wait().unwrap().is_none()
    }
}

impl Drop for Sleeper {
    fn drop(&mut self) {
        let _ended = self.0.kill();
        let _reaped = self.0.wait();
    }
}

fn write(memory: &Path, running: &Running) {
    let path = with(memory, ".running");
    put(&path, &serde_json::to_vec(running).unwrap(), |_| Ok(())).unwrap();
}

#[test]
fn a_proxy_that_its_holder_has_left_is_ended_before_another_holder_has_its_pods() {
    let folder = tempfile::tempdir().unwrap();
    let memory = folder.path().join("node.pods.json");
    let mut proxy = Sleeper::start();
    // Given a holder that has noted its proxy, and is gone …
    let claim = Claim::take(memory.clone()).unwrap();
    claim.note(proxy.pid());
    let mut noted = claim.before();
    assert_eq!(noted.proxy, Process::of(proxy.pid()));
    drop(claim);
    // (the holder is this very process, which lives on)
    noted.holder = None;
    write(&memory, &noted);
    // … then the next one gets the pods once the proxy has ended …
    let asked = Instant::now();
    let claim = Claim::take(memory).unwrap();
    assert!(!proxy.is_there());
    assert!(asked.elapsed() >= ENDS_WITHIN, "it had time to end");
    // … and leaves nothing behind after an orderly end.
    claim.clear();
    assert_eq!(claim.before().proxy, None);
}

#[test]
fn a_proxy_that_ends_within_half_a_second_is_not_killed() {
    let folder = tempfile::tempdir().unwrap();
    let memory = folder.path().join("node.pods.json");
    let mut proxy = Sleeper::start_for("0.2");
    let claim = Claim::take(memory.clone()).unwrap();
    claim.note(proxy.pid());
    let mut noted = claim.before();
    drop(claim);
    noted.holder = None;
    write(&memory, &noted);
    drop(Claim::take(memory).unwrap());
    assert_eq!(proxy.0.wait().unwrap().code(), Some(0));
}

#[test]
fn a_process_that_only_has_the_number_of_the_proxy_is_left_alone() {
    let folder = tempfile::tempdir().unwrap();
    let memory = folder.path().join("node.pods.json");
    let mut other = Sleeper::start();
    let Process { pid, started } = Process::of(other.pid()).unwrap();
    let noted = |machine: String, started: u64| Running {
        machine,
        holder: None,
        proxy: Some(Process { pid, started }),
    };
    for running in [
        // A process with another start time, or from another boot of the machine.
        noted(machine(), started - 1),
        noted("another".to_owned(), started),
        Running {
            proxy: Some(Process { pid: -1, started }),
            ..noted(machine(), started)
        },
    ] {
        write(&memory, &running);
        drop(Claim::take(memory.clone()).unwrap());
        assert!(other.is_there(), "{running:?}");
    }
    // A file that another user could have written is ignored, too.
    write(&memory, &noted(machine(), started));
    let open_to_all = std::os::unix::fs::PermissionsExt::from_mode(0o666);
    fs::set_permissions(with(&memory, ".running"), open_to_all).unwrap();
    drop(Claim::take(memory.clone()).unwrap());
    assert!(other.is_there());
    fs::write(with(&memory, ".running"), "{").unwrap();
    drop(Claim::take(memory).unwrap());
}

#[test]
fn the_pods_of_a_holder_that_lives_are_not_taken_and_those_of_one_that_dies_are_waited_for() {
    let folder = tempfile::tempdir().unwrap();
    let memory = folder.path().join("node.pods.json");
    let first = Claim::take(memory.clone()).unwrap();
    let refused = Claim::take(memory.clone()).unwrap_err();
    assert!(refused.is_busy());
    assert!(
        refused
            .to_string()
            .contains("another holder has these pods")
    );
    std::thread::scope(|scope| {
        let second = scope.spawn(|| Claim::take(memory.clone()));
        pause(LOOK_EVERY * 4);
        drop(first);
        second.join().unwrap().unwrap();
    });
}

#[test]
fn a_number_that_is_a_threads_by_now_is_no_process_to_wait_for() {
    let (tell, told) = std::sync::mpsc::sync_channel(1);
    let (stop, stopped) = std::sync::mpsc::sync_channel::<()>(1);
    let thread = std::thread::spawn(move || {
        tell.send(rustix::thread::gettid()).unwrap();
        let _at_the_end = stopped.recv();
    });
    let number = told.recv().unwrap().as_raw_nonzero().get();
    let process = Process {
        pid: number,
        started: 1,
    };
    process
        .ends("the proxy of the holder before", true)
        .unwrap();
    drop(stop);
    thread.join().unwrap();
}
