use std::os::unix::fs::symlink;
use std::os::unix::net::UnixListener;
use std::sync::{Arc, mpsc};
use std::thread;
use std::time::Duration;

use rustix::fs::{CWD, FileType, mknodat};

use super::*;

#[test]
fn a_clock_that_was_set_back_stands_still_and_says_so() {
    let system = Arc::new(AtomicU64::new(5_000));
    let shown = Arc::clone(&system);
    let clock = Clock::with(4_000, move || shown.load(Ordering::Relaxed));
    assert_eq!((clock.now(), clock.is_degraded()), (5_000, false));
    assert!(clock.raise(5_000));
    assert!(!clock.raise(4_500));
    system.store(0, Ordering::Relaxed);
    assert_eq!((clock.now(), clock.is_degraded()), (5_000, true));
    system.store(5_001, Ordering::Relaxed);
    assert_eq!((clock.now(), clock.is_degraded()), (5_001, false));
}

#[test]
fn no_certificate_takes_the_floor_far_ahead() {
    let clock = Clock::with(1_000_000, || 1_000_000);
    assert!(!clock.raise(1_000_000 + MAX_LEAP_S + 1));
    assert!(clock.raise(1_000_000 + MAX_LEAP_S));
    let fresh = Clock::with(0, || 0);
    assert!(fresh.raise(1_700_000_000));
}

#[test]
fn a_floor_outlives_the_process() {
    let dir = tempfile::tempdir().unwrap();
    let file = FloorFile::new(dir.path().join("time"));
    assert_eq!(file.read().unwrap(), 0);
    file.write(1_700_000_000).unwrap();
    file.write(1_700_000_001).unwrap();
    assert_eq!(file.read().unwrap(), 1_700_000_001);
    for broken in ["", "soon", "-1", "18446744073709551616", "1 2"] {
        fs::write(dir.path().join("time"), broken).unwrap();
        let error = file.read().unwrap_err().to_string();
        assert!(error.contains("time"), "{error}");
    }
}

/// The result of work that could block for ever.
fn in_time<T: Send + 'static>(work: impl FnOnce() -> T + Send + 'static) -> T {
    let (sender, done) = mpsc::sync_channel(1);
    thread::spawn(move || sender.send(work()));
    done.recv_timeout(Duration::from_secs(10))
        .expect("it does not block")
}

fn fifo(path: &Path) {
    mknodat(CWD, path, FileType::Fifo, Mode::RUSR | Mode::WUSR, 0).unwrap();
}

#[test]
fn a_floor_that_is_no_plain_file_is_refused_at_once() {
    let dir = tempfile::tempdir().unwrap();
    let at = |name: &str| dir.path().join(name);
    fifo(&at("fifo"));
    fs::create_dir(at("folder")).unwrap();
    fs::write(at("plain"), "5").unwrap();
    symlink(at("plain"), at("link")).unwrap();
    let _socket = UnixListener::bind(at("socket")).unwrap();
    for name in ["fifo", "folder", "link", "socket", "/dev/null"] {
        let file = FloorFile::new(at(name));
        let error = in_time(move || file.read()).unwrap_err().to_string();
        assert!(
            error.contains("no plain file: remove it"),
            "{name}: {error}"
        );
    }
}

#[test]
fn what_an_interrupted_write_left_is_replaced_and_never_opened() {
    let dir = tempfile::tempdir().unwrap();
    let (floor, beside) = (dir.path().join("floor"), dir.path().join("floor.new"));
    let write = |value| {
        let file = FloorFile::new(floor.clone());
        in_time(move || file.write(value).and_then(|()| file.read()))
    };
    fs::write(&beside, "12345678").unwrap();
    assert_eq!(write(6).unwrap(), 6);
    fifo(&beside);
    assert_eq!(write(7).unwrap(), 7);
    // Nothing is written through a link.
    let other = dir.path().join("other");
    fs::write(&other, "as it was").unwrap();
    symlink(&other, &beside).unwrap();
    assert_eq!(write(8).unwrap(), 8);
    assert_eq!(fs::read_to_string(&other).unwrap(), "as it was");
    fs::create_dir(&beside).unwrap();
    assert!(write(9).is_err());
}
