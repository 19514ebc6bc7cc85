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

#[test]
fn the_best_and_the_worst_run_are_left_out_whatever_their_order() {
    let runs = [4.0, 9.0, 1.0, 7.0, 5.0, 5.5, 4.5, 6.0, 8.0, 3.0];
    let left = less_extremes(&runs, |run| *run);
    assert_eq!(left.len(), 8);
    assert!(!left.contains(&&9.0) && !left.contains(&&1.0));
    assert_eq!(mean(left.into_iter().copied()), Some(43.0 / 8.0));
    // One of those that are alike stays.
    assert_eq!(less_extremes(&[2.0, 2.0, 2.0], |run| *run), [&2.0]);
    assert_eq!(less_extremes(&[1.0, 2.0], |run| *run).len(), 2);
    let none: [f64; 0] = [];
    assert!(less_extremes(&none, |run| *run).is_empty());
}

#[test]
fn a_mean_of_nothing_is_none() {
    assert_eq!(mean([]), None);
    assert_eq!(mean([1.0, f64::NAN]), None);
    assert_eq!(mean([1.0, 2.0, 6.0]), Some(3.0));
}
