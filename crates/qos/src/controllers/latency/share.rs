//! What each offline pod may use of what all of them may use.

/// Divides processors among pods evenly: a pod whose own limit is less than its share keeps its own, and the others divide
/// what it leaves. Returns the processors of each, in their order, or `None` for a pod that keeps what it has. A share is at
/// least `least`: the kernel takes no quota below 1 ms (Documentation/scheduler/sched-bwc.rst).
pub fn shares(all: f64, own: &[Option<f64>], least: f64) -> Vec<Option<f64>> {
    let mut limits: Vec<f64> = own.iter().flatten().copied().collect();
    limits.sort_by(f64::total_cmp);
    let (mut left, mut pods) = (all, own.len());
    for limit in limits {
        // From the smallest one on: once a limit is above the share, all later ones are.
        if limit > left / pods as f64 {
            break;
        }
        left -= limit;
        pods -= 1;
    }
    let share = (left / pods.max(1) as f64).max(least);
    let each = own.iter();
    each.map(|own| own.is_none_or(|own| own > share).then_some(share))
        .collect()
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::shares;

    #[test]
    fn pods_with_a_small_quota_keep_it_and_leave_the_rest() {
        assert_eq!(shares(1.0, &[], 0.01), []);
        assert_eq!(shares(1.0, &[None, None], 0.01), [Some(0.5), Some(0.5)]);
        let own = [Some(0.2), None, Some(2.0)];
        assert_eq!(shares(1.0, &own, 0.01), [None, Some(0.4), Some(0.4)]);
        assert_eq!(shares(1.0, &[None; 1_000], 0.01), [Some(0.01); 1_000]);
    }

    proptest! {
        #[test]
        fn no_pod_gets_more_than_its_own_and_all_together_no_more_than_there_is(
            all in 0.05f64..8.0,
            own in prop::collection::vec(prop::option::of(0.01f64..8.0), 1..50),
        ) {
            let given = shares(all, &own, 0.01);
            let mut sum = 0.0;
            for (given, own) in given.iter().zip(&own) {
                let used = given.or(*own).expect("a pod without a limit gets one");
                prop_assert!(own.is_none_or(|own| used <= own));
                prop_assert!(given.is_none_or(|given| given >= 0.01));
                sum += used;
            }
            // Beyond that only by what the kernel's least quotas need.
            prop_assert!(sum <= all + 0.01 * own.len() as f64, "{sum} of {all}");
        }
    }
}
