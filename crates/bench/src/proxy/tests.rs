use super::*;
use crate::systems::never_started as system;

#[test]
fn a_peer_needs_a_name_and_a_path() {
    assert_eq!(
        named_path("old=/opt/x"),
        Ok(("old".to_owned(), PathBuf::from("/opt/x")))
    );
    assert!(named_path("/opt/x").is_err());
    assert!(named_path("=/opt/x").is_err());
    assert!(named_path("a b=/opt/x").is_err());
}

#[test]
fn a_full_run_has_five_rounds_of_nine_cells_and_a_quick_one_three_of_five() {
    const BODIES: [u64; 3] = [128, 4 << 10, 1 << 20];
    let cells = |plan: &ProxyPlan| -> Vec<_> {
        let cells = plan.cells.iter();
        cells
            .map(|cell| (cell.connections, cell.body_bytes))
            .collect()
    };
    let full = ProxyPlan::full();
    let all = BODIES.map(|body| [64, 1, 256].map(|connections| (connections, body)));
    assert_eq!((full.rounds, cells(&full)), (5, all.concat()));
    let quick = ProxyPlan::quick();
    let some = [
        (64, 128),
        (1, 128),
        (256, 128),
        (64, 4 << 10),
        (64, 1 << 20),
    ];
    assert_eq!((quick.rounds, cells(&quick)), (3, some.to_vec()));
    // With half a core each round has two windows, of 40 periods of a quota.
    assert!(2 * full.rounds >= 10 && full.half_core_window_s >= 4.0);
    for plan in [full, quick] {
        let main = plan.main();
        assert_eq!((main.connections, main.body_bytes), (64, 128));
    }
}

#[test]
fn calls_have_one_cell_and_a_rate_that_all_can_do() {
    let plan = ProxyPlan::full().carrying(Traffic::Grpc);
    assert_eq!(plan.cells, [plan.main()]);
    assert!(plan.whole_cores && plan.offered_share <= 0.5);
}

#[test]
fn a_peer_that_passes_no_bytes_on_is_told() {
    let heddle = [system("heddle", ProxyKind::Heddle)];
    let [note] = &left_out(Traffic::Opaque, &heddle, &[])[..] else {
        panic!("one note");
    };
    assert!(note.contains("libnginx-mod-stream"), "{note}");
    assert!(left_out(Traffic::MutualTls, &heddle, &[]).is_empty());
    assert!(left_out(Traffic::Opaque, &heddle, &["heddle".to_owned()]).is_empty());
    let all = [
        system("heddle", ProxyKind::Heddle),
        system("nginx", ProxyKind::Nginx),
    ];
    assert!(left_out(Traffic::Opaque, &all, &[]).is_empty());
}
