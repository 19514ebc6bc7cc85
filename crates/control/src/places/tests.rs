use super::*;

fn is_told(leave: &mut Leave) -> bool {
    leave.0.try_recv() == Err(oneshot::error::TryRecvError::Closed)
}

#[test]
fn the_oldest_goes_and_a_busy_one_last() {
    let places = Places::new(2);
    let (first, mut first_leaves, displaced) = places.take();
    assert!(!displaced);
    let (second, mut second_leaves, displaced) = places.take();
    assert!(!displaced);

    let call = first.holding().call();
    let (third, mut third_leaves, displaced) = places.take();
    assert!(displaced);
    assert!(is_told(&mut second_leaves) && !is_told(&mut first_leaves));
    drop(second);
    assert!(!is_told(&mut third_leaves));

    drop(call);
    let (fourth, fourth_leaves, displaced) = places.take();
    assert!(displaced && is_told(&mut first_leaves));
    drop((first, third));
    let (_fifth, _, displaced) = places.take();
    assert!(!displaced, "a place was free");

    // When all holders are busy, the oldest is evicted all the same.
    let _calls = (fourth.holding().call(), _fifth.holding().call());
    let (_sixth, _, displaced) = places.take();
    let mut fourth_leaves = fourth_leaves;
    assert!(displaced && is_told(&mut fourth_leaves));
}
