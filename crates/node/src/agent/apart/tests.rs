use std::future::{pending, ready};

use tokio::sync::Notify;

use super::*;

/// When attempts are made that all fail at once, in seconds since the first one.
async fn attempts(apart: &mut Apart, number: usize, is_asked: bool) -> Vec<f64> {
    let began = Instant::now();
    let mut seen = Vec::new();
    for _ in 0..number {
        match is_asked {
            true => apart.wait(Duration::ZERO, ready(())).await,
            false => apart.wait(Duration::ZERO, pending()).await,
        }
        seen.push(began.elapsed().as_secs_f64());
    }
    seen
}

fn gaps(times: &[f64]) -> Vec<f64> {
    let pairs = times.windows(2);
    pairs.map(|pair| pair[1] - pair[0]).collect()
}

#[tokio::test(start_paused = true)]
async fn while_nothing_is_asked_waits_double_up_to_a_minute() {
    for seed in 0..20 {
        let mut apart = Apart::new(Random::new(seed));
        let mut times = vec![0.0];
        times.extend(attempts(&mut apart, 9, false).await);
        let whole = [1.0, 2.0, 4.0, 8.0, 16.0, 32.0, 60.0, 60.0, 60.0];
        for (gap, whole) in gaps(&times).into_iter().zip(whole) {
            assert!(
                gap >= whole / 2.0 && gap <= whole + 0.002,
                "{gap} of {whole}"
            );
        }
        apart.wait(GOOD, pending()).await;
        let began = Instant::now();
        apart.wait(GOOD, pending()).await;
        assert!(began.elapsed() <= SHORTEST_WAIT + Duration::from_millis(2));
    }
}

#[tokio::test(start_paused = true)]
async fn while_callers_ask_attempts_are_two_to_four_seconds_apart() {
    let mut all = Vec::new();
    for seed in 0..20 {
        let mut apart = Apart::new(Random::new(seed));
        attempts(&mut apart, 8, false).await;
        let times = attempts(&mut apart, 100, true).await;
        all.extend(gaps(&times));
    }
    let is_within = |gap: &f64| (2.0..=4.01).contains(gap);
    assert!(all.iter().all(is_within), "{all:?}");
    // Nodes do not come at one moment.
    let (early, late) = (all.iter().filter(|gap| **gap < 2.5), all.iter());
    let late = late.filter(|gap| **gap > 3.5);
    assert!(early.count() > 200 && late.count() > 200);
}

#[tokio::test(start_paused = true)]
async fn one_question_brings_one_attempt_forward_and_leaves_the_back_off() {
    for seed in 0..20 {
        let mut apart = Apart::new(Random::new(seed));
        attempts(&mut apart, 8, false).await;
        let began = Instant::now();
        let asked = Notify::new();
        let caller = async {
            tokio::time::sleep(Duration::from_secs(20)).await;
            asked.notify_one();
        };
        let waits = apart.wait(Duration::ZERO, asked.notified());
        tokio::join!(caller, waits);
        let at = began.elapsed().as_secs_f64();
        assert!((20.0..=22.01).contains(&at), "{at}");
        // It fails. The next one is when it would have been.
        apart.wait(Duration::ZERO, asked.notified()).await;
        let at = began.elapsed().as_secs_f64();
        assert!((30.0..=60.01).contains(&at), "{at}");
    }
}
