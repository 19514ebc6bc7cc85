//! Quota burst: time that a group did not use may be saved up, and used beyond its quota (`cpu.cfs_burst_us`,
//! `cpu.max.burst`; Documentation/scheduler/sched-bwc.rst).

/// What containers and their pod may save up, in microseconds, for a wish per container. The kernel takes at most the
/// quota; a group without a quota is never throttled and saves nothing.
///
/// Returns the value for each quota of `containers`, in their order, and that for the pod: the sum, at most the pod's
/// quota, because the pod's own quota would throttle them otherwise.
pub fn bursts(wish_us: u64, containers: &[Option<u64>], pod: Option<u64>) -> (Vec<u64>, u64) {
    let each: Vec<u64> = containers
        .iter()
        .map(|quota| quota.map_or(0, |quota| wish_us.min(quota)))
        .collect();
    let sum = match containers {
        // The pod's group has no containers below it.
        [] => wish_us,
        _ => each
            .iter()
            .fold(0, |sum: u64, one| sum.saturating_add(*one)),
    };
    let of_pod = pod.map_or(0, |quota| sum.min(quota));
    (each, of_pod)
}

#[cfg(test)]
mod tests {
    use super::bursts;

    #[test]
    fn a_burst_is_at_most_the_quota_and_the_pod_gets_the_sum() {
        let both = [Some(50_000), Some(20_000)];
        assert_eq!(
            bursts(30_000, &both, Some(70_000)),
            (vec![30_000, 20_000], 50_000)
        );
        assert_eq!(
            bursts(90_000, &both, Some(60_000)),
            (vec![50_000, 20_000], 60_000)
        );
        // A container without a quota makes a pod without one.
        assert_eq!(
            bursts(30_000, &[Some(50_000), None], None),
            (vec![30_000, 0], 0)
        );
        assert_eq!(bursts(30_000, &[], Some(20_000)), (vec![], 20_000));
        assert_eq!(bursts(30_000, &[], None), (vec![], 0));
    }
}
