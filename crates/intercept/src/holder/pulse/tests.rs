use super::*;

/// Runs the given number of checks, one a second.
fn looks(pulse: &mut Pulse, now: &mut Instant, times: usize) -> Vec<Beat> {
    let look = |_| {
        *now += EVERY;
        pulse.look(*now)
    };
    (0..times).map(look).collect()
}

#[test]
fn who_answers_is_asked_again_and_who_does_not_is_late_and_then_ended() {
    let mut now = Instant::now();
    let mut pulse = Pulse::new(Some(5), now);
    assert_eq!(pulse.look(now), Beat::None, "it is not time");
    for number in 1..10 {
        assert_eq!(looks(&mut pulse, &mut now, 1), [Beat::Ask(number)]);
        assert!(!pulse.answered(number));
    }
    use Beat::{Ask, End, Late};
    let silence = looks(&mut pulse, &mut now, 8);
    assert_eq!(
        silence,
        [
            Ask(10),
            Ask(10),
            Ask(10),
            Late,
            Ask(10),
            End,
            Ask(10),
            Ask(10)
        ]
    );
    assert!(pulse.is_late());
    // An answer to another ping does not count.
    assert!(!pulse.answered(9));
    assert!(pulse.is_late());
    assert!(pulse.answered(10));
    assert!(!pulse.is_late() && !pulse.answered(10));
    assert_eq!(looks(&mut pulse, &mut now, 2), [Ask(11), Ask(11)]);
}

#[test]
fn time_in_which_the_holder_did_not_look_is_not_held_against_the_proxy() {
    let mut now = Instant::now();
    let mut pulse = Pulse::new(Some(5), now);
    assert_eq!(looks(&mut pulse, &mut now, 1), [Beat::Ask(1)]);
    // Three pauses of an hour count as three checks only.
    let beats = [1, 2, 3].map(|_| {
        now += Duration::from_secs(3600);
        pulse.look(now)
    });
    assert_eq!(beats, [Beat::Ask(1), Beat::Ask(1), Beat::Late]);
    assert!(pulse.answered(1));
    assert_eq!(pulse.due(), now + EVERY);
}

#[test]
fn without_a_limit_no_proxy_is_ended() {
    let mut now = Instant::now();
    let mut pulse = Pulse::new(None, now);
    let beats = looks(&mut pulse, &mut now, 10_000);
    assert!(!beats.contains(&Beat::End));
    assert_eq!(beats.iter().filter(|beat| **beat == Beat::Late).count(), 1);
}
