use super::*;

#[test]
fn the_median_is_the_middle_or_between_the_two() {
    let odd = Spread::of(&[9.0, 1.0, 2.0]).expect("figures");
    assert_eq!((odd.median, odd.min, odd.max), (2.0, 1.0, 9.0));
    assert_eq!(odd.rounds, [9.0, 1.0, 2.0]);
    assert_eq!(
        Spread::of(&[1.0, 2.0, 4.0, 100.0]).expect("figures").median,
        3.0
    );
    assert_eq!(Spread::of(&[]), None);
    assert_eq!(Spread::of(&[1.0, f64::NAN]), None);
}

#[test]
fn ratios_pair_the_rounds_and_skip_those_without_a_partner() {
    // The machine became twice as slow in the second round: the ratio does not see it.
    let ours = [Some(5.0), Some(10.0), None, Some(7.0)];
    let theirs = [Some(10.0), Some(20.0), Some(10.0), Some(0.0)];
    assert_eq!(ratio(&ours, &theirs).expect("pairs").rounds, [0.5, 0.5]);
    assert_eq!(ratio(&[None], &[Some(1.0)]), None);
}
