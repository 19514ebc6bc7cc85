//! Tests of differences.

use proptest::prelude::*;

use super::differences;

proptest! {
    #[test]
    fn applied_to_one_list_they_give_the_other(
        before in prop::collection::btree_map(0..20u8, 0..3u8, 0..12),
        now in prop::collection::btree_map(0..20u8, 0..3u8, 0..12),
    ) {
        let [one, other]: [Vec<(u8, u8)>; 2] =
            [&before, &now].map(|map| map.iter().map(|(key, value)| (*key, *value)).collect());
        let found = differences(&one, &other, |a, b| a.0.cmp(&b.0), |a, b| a == b);
        let mut patched = before;
        for (was, is) in found {
            prop_assert_ne!(was, is, "it differs");
            if let Some((key, value)) = was {
                prop_assert_eq!(patched.remove(key), Some(*value));
            }
            if let Some((key, value)) = is {
                prop_assert_eq!(patched.insert(*key, *value), None);
            }
        }
        prop_assert_eq!(patched, now);
    }
}
