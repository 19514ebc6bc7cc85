use std::sync::Arc;

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
