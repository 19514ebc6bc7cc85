use std::time::{Duration, Instant};

use super::{LIVED, Restarts, WAIT};

#[test]
fn a_service_that_dies_again_and_again_waits_ever_longer_and_one_that_lived_does_not() {
    let mut now = Instant::now();
    let mut restarts = Restarts::new(now);
    let mut dies_after = |lived: Duration| {
        restarts.started(now);
        now += lived;
        restarts.ended(now).as_millis()
    };
    let early = Duration::from_millis(10);
    let waits: Vec<u128> = (0..8).map(|_| dies_after(early)).collect();
    assert_eq!(waits, [100, 200, 400, 800, 1_600, 3_200, 5_000, 5_000]);
    assert_eq!(dies_after(LIVED), WAIT.0.as_millis());
    assert_eq!(dies_after(LIVED), WAIT.0.as_millis());
    assert_eq!(dies_after(early), 2 * WAIT.0.as_millis());
}
