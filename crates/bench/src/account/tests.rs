use super::*;

#[test]
fn stat_is_read_past_a_hostile_name() {
    let line = "7 (a ) 1 (b) S 1 7 7 0 -1 4194560 120 0 0 0 41 59 3 4 20 0 1 0 100 0 0";
    assert_eq!(parse_stat(line), Some((41, 59)));
    assert_eq!(parse_stat("7 (a) S 1"), None);
}

#[test]
fn schedstat_starts_with_the_time_on_cpu() {
    assert_eq!(parse_schedstat("504122 76935 2\n"), Some(504_122));
    assert_eq!(parse_schedstat(""), None);
}

#[test]
fn a_rollup_yields_all_sums() {
    let text = "55d0-7ffe ---p 0 00:00 0  [rollup]\nRss:  1234 kB\nPss:  567 kB\nPss_Dirty: 1 kB\nPrivate_Clean: 8 kB\nPrivate_Dirty: 20 kB\nAnonymous: 9 kB\n";
    assert_eq!(
        parse_smaps_rollup(text),
        Some(Memory {
            rss_kib: 1234,
            pss_kib: 567,
            private_kib: 28,
            anonymous_kib: 9,
        })
    );
    assert_eq!(parse_smaps_rollup("Rss: 1 kB\n"), None);
}

#[test]
fn cores_are_as_busy_as_their_ticks_say() {
    let start =
        parse_cores("cpu  9 9 9 9\ncpu0 10 0 10 80 0 0 0 0 5 0\ncpu1 0 0 0 50 50 0 0 0\nintr 1\n");
    let end = parse_cores("cpu  9 9 9 9\ncpu0 60 0 10 130 0 0 0 0 5 0\ncpu1 0 0 0 75 75 0 0 0\n");
    assert_eq!(end.busy_since(&start), vec![0.5, 0.0]);
}

#[test]
fn stolen_time_is_not_busy_but_belongs_to_the_whole() {
    let start = parse_cores("cpu0 10 0 10 80 0 0 0 100 0 0\n");
    let end = parse_cores("cpu0 30 0 10 120 0 3 2 135 0 0\n");
    assert_eq!(end.busy_since(&start), vec![0.25]);
    // Old kernels have no field for steal.
    assert_eq!(parse_cores("cpu0 10 0 10 80\n"), Cores(vec![(20, 100)]));
}

#[test]
fn usage_is_the_difference_of_two_readings() {
    let reading = |threads: &[(u32, u64)], user_ticks, system_ticks| Reading {
        threads: threads.iter().copied().collect(),
        user_ticks,
        system_ticks,
    };
    let start = reading(&[(1, 100), (2, 50)], 10, 10);
    // A thread that is new counts from zero.
    let end = reading(&[(1, 400), (2, 50), (3, 25)], 13, 19);
    assert_eq!(
        between(&start, &end),
        Usage {
            cpu_ns: 325,
            user_share: 0.25
        }
    );
    // The nanoseconds of a thread that ended are lost; the ticks of the process still include them.
    let end = reading(&[(1, 400)], 13, 19);
    assert_eq!(between(&start, &end).cpu_ns, 120_000_000);
}

#[test]
fn this_process_can_be_read() {
    let pid = std::process::id();
    let start = read(pid).expect("own accounts");
    let mut sum = 0_u64;
    for n in 0..5_000_000_u64 {
        sum = std::hint::black_box(sum.wrapping_add(n));
    }
    let usage = between(&start, &read(pid).expect("own accounts"));
    assert!(usage.cpu_ns > 0);
    assert!(memory(pid).expect("own memory").rss_kib > 100);
    assert_eq!(tree(pid)[0], pid);
    assert!(read(u32::MAX).is_err());
}
