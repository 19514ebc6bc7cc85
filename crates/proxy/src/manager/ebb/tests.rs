use super::*;

const TICK: Duration = Duration::from_millis(100);
const MIB: usize = 1024 * 1024;

/// How often memory is returned during `seconds` at this resident size and this number of connections.
fn over(ebb: &mut Ebb, resident: usize, connections: usize, seconds: u64) -> usize {
    let looks = 0..seconds * 10;
    let now = MemoryUse::new(resident * MIB, connections, 0);
    looks.filter(|_| ebb.observe(TICK, now)).count()
}

#[test]
fn after_a_flood_it_is_given_back_once() {
    let mut ebb = Ebb::default();
    assert_eq!(over(&mut ebb, 20, 10, 60), 0);
    assert_eq!(over(&mut ebb, 51, 8_000, 600), 0, "all of it is needed");
    assert_eq!(
        over(&mut ebb, 51, 10, 4),
        0,
        "what was freed a moment ago is used again"
    );
    assert_eq!(over(&mut ebb, 51, 10, 2), 1);
    assert_eq!(over(&mut ebb, 22, 10, 600), 0);
    assert_eq!(over(&mut ebb, 51, 8_000, 60), 0);
    assert_eq!(over(&mut ebb, 51, 10, 60), 1);
}

#[test]
fn a_flood_that_no_look_has_seen_is_one() {
    let mut ebb = Ebb::default();
    assert_eq!(over(&mut ebb, 20, 10, 60), 0);
    assert_eq!(over(&mut ebb, 80, 10, 60), 1);
}

#[test]
fn a_flood_that_takes_more_than_is_thought_is_gone_when_it_is_gone() {
    let mut ebb = Ebb::default();
    assert_eq!(over(&mut ebb, 20, 10, 60), 0);
    assert_eq!(over(&mut ebb, 120, 8_000, 600), 1, "for nothing, and once");
    assert_eq!(over(&mut ebb, 120, 10, 60), 1);
}

#[test]
fn what_comes_and_goes_is_kept() {
    let mut ebb = Ebb::default();
    assert_eq!(over(&mut ebb, 20, 10, 60), 0);
    for _ in 0..100 {
        assert_eq!(over(&mut ebb, 50, 8_000, 2), 0);
        assert_eq!(over(&mut ebb, 50, 10, 2), 0);
    }
    let mut ebb = Ebb::default();
    assert_eq!(over(&mut ebb, 20, 0, 60), 0);
    assert_eq!(over(&mut ebb, 23, 0, 60), 0, "it is little");
}

#[test]
fn blocks_explain_memory_as_connections_do() {
    let mut ebb = Ebb::default();
    let now = |resident: usize, blocks: usize| MemoryUse::new(resident * MIB, 100, blocks * MIB);
    assert!(!ebb.observe(TICK, now(20, 0)));
    assert!(!ebb.observe(SETTLED, now(84, 64)));
    assert!(ebb.observe(SETTLED, now(84, 0)));
}

#[test]
fn what_is_resident_is_read() {
    let resident = Resident::open();
    let before = resident.read().unwrap();
    assert!(before > 64 * 1024, "{before}");
    let more = vec![1_u8; 32 * MIB];
    let grown = resident.read().unwrap();
    assert!(
        grown >= before + 16 * MIB,
        "{before}, and {grown} with {}",
        more.len()
    );
}
