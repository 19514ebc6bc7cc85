use super::*;

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
fn plans_have_the_main_cell_and_enough_rounds() {
    for (plan, rounds) in [(ProxyPlan::quick(), 3), (ProxyPlan::full(), 5)] {
        assert!(plan.rounds >= rounds);
        assert!(plan.cells.contains(&plan.main()));
    }
    assert_eq!(ProxyPlan::full().cells.len(), 9);
}

#[test]
fn calls_have_one_cell_and_a_rate_that_all_can_do() {
    let plan = ProxyPlan::full().carrying(Traffic::Grpc);
    assert_eq!(plan.cells, [plan.main()]);
    assert!(plan.whole_cores && plan.offered_share <= 0.5);
}
