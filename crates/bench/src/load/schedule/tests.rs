use super::*;

#[test]
fn arrivals_keep_the_rate() {
    let start = Instant::now();
    let mut schedule = Schedule::new(10_000.0, 0..1, 7);
    schedule.start(start);
    let mut sent = 0_u32;
    while let Some((index, _)) = schedule.next_due(start + Duration::from_secs(5)) {
        schedule.freed(index);
        sent += 1;
    }
    assert!((49_000..51_000).contains(&sent), "{sent}");
}

#[test]
fn a_request_that_waited_keeps_the_time_it_was_due() {
    let start = Instant::now();
    let mut schedule = Schedule::new(1000.0, 0..1, 7);
    schedule.start(start);
    assert_eq!(schedule.next_due(start), Some((0, start)));
    let second = schedule.wakes().unwrap();
    let late = start + Duration::from_secs(1);
    assert_eq!(schedule.next_due(late), None);
    assert!(schedule.worst_backlog() > 900);
    schedule.freed(0);
    assert_eq!(schedule.next_due(late), Some((0, second)));
}

#[test]
fn connections_take_turns() {
    let start = Instant::now();
    let mut schedule = Schedule::new(1000.0, 0..3, 7);
    schedule.start(start);
    let later = start + Duration::from_millis(100);
    let mut order = Vec::new();
    for _ in 0..6 {
        let (index, _) = schedule.next_due(later).expect("due");
        schedule.freed(index);
        order.push(index);
    }
    assert_eq!(order, [0, 1, 2, 0, 1, 2]);
}

#[test]
fn the_backlog_is_bounded_and_the_rest_counted() {
    let start = Instant::now();
    let mut schedule = Schedule::new(1_000_000.0, 0..1, 7);
    schedule.start(start);
    schedule.next_due(start);
    assert_eq!(schedule.next_due(start + Duration::from_secs(1)), None);
    assert_eq!(schedule.worst_backlog(), MAX_BACKLOG);
    assert!(schedule.lost() > 700_000);
}

#[test]
fn the_same_seed_means_the_same_arrivals() {
    let gaps = |seed| {
        let mut schedule = Schedule::new(10.0, 0..1, seed);
        [schedule.gap(), schedule.gap(), schedule.gap()]
    };
    assert_eq!(gaps(3), gaps(3));
    assert_ne!(gaps(3), gaps(4));
}
