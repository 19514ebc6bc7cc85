use heddle_model::WorkloadName;

use super::super::Permits;
use super::*;

const BOUND: usize = 8_192;
/// The share of one source while no other holds any: half of all but the reserved eighth.
const SHARE: usize = BOUND * 7 / 8 / 2;

fn address(text: &str) -> IpAddr {
    text.parse().unwrap()
}

/// Takes as many permits as possible.
fn flood(sources: &Arc<Sources>, client: &str) -> Vec<Permit> {
    std::iter::from_fn(|| sources.take(address(client)).ok()).collect()
}

fn of_any(fixed: Option<usize>) -> Arc<Sources> {
    Permits::new(BOUND, None, fixed).sources(ShareOwner::Any)
}

#[test]
fn one_address_leaves_as_much_as_it_takes_to_the_others() {
    let sources = of_any(None);
    let first = flood(&sources, "192.0.2.1");
    assert!(
        (SHARE..=SHARE + 1).contains(&first.len()),
        "{}",
        first.len()
    );
    assert_eq!(
        sources.take(address("192.0.2.1")).unwrap_err(),
        PermitRefusal::Address
    );
    let second = flood(&sources, "192.0.2.2");
    assert!(second.len() >= SHARE / 2, "{}", second.len());
    // However many sources take what they can, a new one still gets a few.
    let more: Vec<_> = (3..20)
        .map(|n| flood(&sources, &format!("192.0.2.{n}")))
        .collect();
    assert_eq!(flood(&sources, "192.0.2.99").len(), 32);
    drop((first, second, more));
    assert!(sources.held().is_empty());
    assert!(sources.held().capacity() <= 2 * KEPT_ADDRESSES);
}

#[test]
fn a_network_of_ipv6_is_one_and_a_mapped_address_is_the_one_that_it_maps() {
    let sources = of_any(Some(2));
    let _own: Vec<Permit> = ["2001:db8:1:2::1", "2001:db8:1:2:ffff::9"]
        .map(|client| sources.take(address(client)).unwrap())
        .into();
    assert!(sources.take(address("2001:db8:1:2::7")).is_err());
    assert!(sources.take(address("2001:db8:1:3::1")).is_ok());
    let _mapped: Vec<Permit> = ["192.0.2.1", "::ffff:192.0.2.1"]
        .map(|client| sources.take(address(client)).unwrap())
        .into();
    assert!(sources.take(address("192.0.2.1")).is_err());
}

#[test]
fn listeners_count_for_themselves() {
    let permits = Permits::new(BOUND, None, Some(1));
    let [first, second] = [(); 2].map(|()| permits.sources(ShareOwner::Any));
    let _held = first.take(address("127.0.0.1")).unwrap();
    assert!(first.take(address("127.0.0.1")).is_err());
    assert!(second.take(address("127.0.0.1")).is_ok());
}

#[test]
fn those_at_one_pod_share_what_is_the_pods() {
    let permits = Permits::new(BOUND, None, None);
    let workload = WorkloadName::new("shop", "web").unwrap();
    let sources = permits.sources(ShareOwner::Strangers(workload));
    let first = flood(&sources, "192.0.2.1");
    assert!((1_000..SHARE).contains(&first.len()), "{}", first.len());
    let others: Vec<_> = (2..30)
        .map(|n| flood(&sources, &format!("192.0.2.{n}")))
        .collect();
    let all = first.len() + others.iter().map(Vec::len).sum::<usize>();
    assert!(all <= SHARE + 1, "{all}");
    // A health check gets a few permits beside a client that floods.
    drop(others);
    assert!(flood(&sources, "192.0.2.99").len() > 500);
}

#[test]
fn what_is_refused_takes_nothing() {
    let permits = Permits::new(2, None, None);
    let sources = permits.sources(ShareOwner::Any);
    let held = flood(&sources, "192.0.2.1");
    assert_eq!(held.len(), 1, "the other is for others");
    let other = sources.take(address("192.0.2.2")).unwrap();
    assert_eq!(
        sources.take(address("192.0.2.3")).unwrap_err(),
        PermitRefusal::All
    );
    assert_eq!(sources.held().len(), 2);
    drop((held, other));
    assert!(sources.held().is_empty());
}
