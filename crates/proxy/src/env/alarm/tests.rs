use super::*;

#[test]
fn an_alarm_rings_once_at_its_time() {
    let alarms = Alarms::new();
    let alarm = alarms.alarm();
    assert_eq!(alarms.next_sweep(), None);
    alarm.set(95);
    assert_eq!(alarms.next_sweep(), Some(100));
    alarms.sweep(94);
    assert!(!alarm.rang());
    alarms.sweep(95);
    assert!(alarm.rang());
    alarm.set(500);
    assert!(!alarm.rang());
}

#[test]
fn a_cleared_alarm_stays_silent() {
    let alarms = Alarms::new();
    let alarm = alarms.alarm();
    alarm.set(10);
    alarm.clear();
    alarms.sweep(1000);
    assert!(!alarm.rang());
}

#[test]
fn sweeps_are_planned_no_later_than_the_earliest_deadline() {
    let alarms = Alarms::new();
    let (early, late) = (alarms.alarm(), alarms.alarm());
    late.set(100_000);
    alarms.sweep(1000);
    assert_eq!(alarms.next_sweep(), Some(1000 + SWEEP_MS));
    early.set(1042);
    assert_eq!(alarms.next_sweep(), Some(1050));
    alarms.sweep(1050);
    assert!(early.rang() && !late.rang());
}

#[test]
fn no_alarms_need_no_sweep() {
    let alarms = Alarms::new();
    let alarm = alarms.alarm();
    alarm.set(10);
    drop(alarm);
    alarms.sweep(10);
    assert_eq!(alarms.next_sweep(), None);
}

#[test]
fn an_alarm_without_end_never_rings() {
    let alarms = Alarms::new();
    let alarm = alarms.alarm();
    alarm.set(Millis::MAX);
    alarms.sweep(Millis::MAX - 1);
    assert!(!alarm.rang());
}
