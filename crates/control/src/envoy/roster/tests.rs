use super::*;

#[tokio::test(start_paused = true)]
async fn an_envoy_is_heard_as_often_as_it_should_report_in_whatever_call() {
    let envoys = Envoys::default();
    let every = Duration::from_millis(500);
    let workload = |name| WorkloadName::new("shop", name).expect("a name");
    assert!(envoys.may_report(&workload("web"), every));
    assert!(!envoys.may_report(&workload("web"), every));
    assert!(envoys.may_report(&workload("api"), every));
    tokio::time::advance(every).await;
    assert!(envoys.may_report(&workload("web"), every));
    // What is old is not kept.
    assert_eq!(envoys.shared.reported.lock().expect("no panic").len(), 1);
}
