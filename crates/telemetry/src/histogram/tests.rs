use super::{BOUNDS_US, BUCKETS, Histogram, bucket_of};
use proptest::prelude::*;

fn by_search(us: u64) -> usize {
    BOUNDS_US
        .iter()
        .position(|bound| us <= *bound)
        .unwrap_or(BOUNDS_US.len())
}

#[test]
fn a_bound_belongs_to_its_own_bucket_and_the_next_value_to_the_next() {
    for (index, bound) in BOUNDS_US.iter().enumerate() {
        assert_eq!(bucket_of(*bound), index);
        assert_eq!(bucket_of(bound + 1), index + 1);
    }
    assert_eq!(bucket_of(0), 0);
    assert_eq!(bucket_of(u64::MAX), BUCKETS - 1);
}

#[test]
fn neighbouring_bounds_are_far_enough_apart_for_two_comparisons() {
    for pair in BOUNDS_US.windows(2) {
        assert!(pair[1] >= 2 * pair[0], "{pair:?}");
    }
}

proptest! {
    #[test]
    fn the_table_agrees_with_a_search(bits in 0u32..64, noise: u64) {
        let us = noise >> bits;
        prop_assert_eq!(bucket_of(us), by_search(us));
    }

    #[test]
    fn count_and_sum_are_what_was_recorded(values in proptest::collection::vec(0u64..20_000_000, 0..64)) {
        let histogram = Histogram::default();
        for us in &values {
            histogram.record_us(*us);
        }
        prop_assert_eq!(histogram.count(), values.len() as u64);
        prop_assert_eq!(histogram.sum_us(), values.iter().sum::<u64>());
    }
}
