use heddle_model::{NodeName, ServiceAccountName, TrustDomain};

use super::*;

const NOW: u64 = 1_800_000_000;
const HOUR: u64 = 3_600;
const DAY: u64 = 24 * HOUR;

fn own() -> SpiffeId {
    SpiffeId::node(TrustDomain::default(), NodeName::parse("edge-1").unwrap())
}

fn account(name: &str) -> SpiffeId {
    let account = ServiceAccountName::new("shop", name).unwrap();
    SpiffeId::workload(TrustDomain::default(), account)
}

/// This many seconds after the start.
fn after(seconds: u64) -> Moment {
    Moment {
        unix_s: NOW + seconds,
        elapsed: Duration::from_secs(seconds),
    }
}

fn keeper(seed: u64, accounts: &[&str]) -> Keeper {
    let mut keeper = Keeper::new(own(), Random::new(seed));
    keeper.want(&accounts.iter().map(|name| account(name)).collect());
    keeper
}

fn hold(keeper: &mut Keeper, id: &SpiffeId, at: u64, life: u64) {
    let validity = (NOW + at - HOUR, NOW + at + life);
    keeper.hold(id, validity, Some(after(at)));
}

#[test]
fn the_nodes_own_identity_comes_first_and_few_are_asked_for_at_once() {
    let names = ["a", "b", "c", "d", "e", "f"];
    let mut keeper = keeper(1, &names);
    let due = keeper.due(after(0));
    assert_eq!(due, [own(), account("a"), account("b"), account("c")]);
    assert_eq!(keeper.due(after(0)), []);
    hold(&mut keeper, &own(), 0, DAY);
    assert_eq!(keeper.due(after(0)), [account("d")]);
    // The connection to the control plane is gone: all requests are repeated.
    keeper.broken();
    assert_eq!(keeper.due(after(0)).len(), 4);
    assert!(!keeper.is_complete(NOW));
}

#[test]
fn renewal_is_at_half_life_spread_over_a_tenth_and_the_old_one_is_kept() {
    let mut at = Vec::new();
    for seed in 0..200 {
        let mut keeper = keeper(seed, &[]);
        hold(&mut keeper, &own(), 0, DAY);
        let lease = keeper.get(&own()).unwrap().lease.unwrap();
        at.push(lease.renew_at - NOW);
        assert_eq!(
            keeper.next(after(0)),
            Some(Duration::from_secs(lease.renew_at - NOW))
        );
        assert_eq!(keeper.due(after(lease.renew_at - NOW - 1)), []);
        assert_eq!(keeper.due(after(lease.renew_at - NOW)), [own()]);
        keeper.failed(&own(), "no".to_owned(), after(DAY / 2));
        assert!(keeper.is_complete(NOW + DAY) && !keeper.is_complete(NOW + DAY + 1));
    }
    let (first, last) = (at.iter().min().unwrap(), at.iter().max().unwrap());
    assert!((DAY * 4 / 10..=DAY / 2).contains(first), "{first}");
    assert!(
        *last <= DAY / 2 && last - first > DAY / 20,
        "{first} to {last}"
    );
}

#[test]
fn attempts_that_fail_come_less_and_less_often() {
    let mut keeper = keeper(3, &[]);
    let (mut elapsed, mut attempts) = (0_u64, 0);
    while elapsed < HOUR {
        if keeper.due(after(elapsed)) == [own()] {
            attempts += 1;
            keeper.failed(&own(), format!("attempt {attempts}"), after(elapsed));
        }
        let wait = keeper.next(after(elapsed)).unwrap();
        assert!(wait > Duration::ZERO && wait <= LONGEST_WAIT, "{wait:?}");
        elapsed += wait.as_secs().max(1);
    }
    assert!((15..40).contains(&attempts), "{attempts}");
    let kept = keeper.get(&own()).unwrap();
    assert_eq!(kept.failures(), attempts);
    assert_eq!(kept.failure, Some(format!("attempt {attempts}")));
    assert_eq!(keeper.counts(), (0, u64::from(attempts)));
    hold(&mut keeper, &own(), elapsed, DAY);
    let kept = keeper.get(&own()).unwrap();
    assert_eq!((kept.failures(), &kept.failure), (0, &None));
}

/// A clock that is set back does not delay requests, and one that is set forward does not cause a burst of them.
#[test]
fn waits_are_not_measured_by_the_clock_of_certificates() {
    let mut keeper = keeper(4, &[]);
    assert_eq!(keeper.due(after(0)), [own()]);
    keeper.failed(&own(), "no".to_owned(), after(0));
    let set_back = Moment {
        unix_s: NOW - DAY,
        elapsed: Duration::from_secs(1),
    };
    assert_eq!(keeper.due(set_back), [own()]);
    keeper.failed(&own(), "no".to_owned(), set_back);
    let set_forward = Moment {
        unix_s: NOW + DAY,
        elapsed: Duration::from_secs(1),
    };
    assert_eq!(keeper.due(set_forward), []);
}

#[test]
fn a_short_life_with_a_long_backdate_is_not_renewed_all_the_time() {
    let mut keeper = keeper(5, &[]);
    hold(&mut keeper, &own(), 0, 300);
    assert!(keeper.next(after(0)).unwrap() >= Duration::from_secs(120));
    // A certificate from the disk is due: the node does not know when it was received.
    keeper.hold(&own(), (NOW - HOUR, NOW + 300), None);
    assert_eq!(keeper.due(after(0)), [own()]);
}

#[test]
fn what_is_not_wanted_any_more_is_dropped_and_not_held_again() {
    let mut keeper = keeper(6, &["a", "b"]);
    hold(&mut keeper, &account("a"), 0, DAY);
    let dropped = keeper.want(&BTreeSet::from([account("b")]));
    assert_eq!(dropped, [account("a")]);
    hold(&mut keeper, &account("a"), 0, DAY);
    assert!(!keeper.wants(&account("a")) && keeper.wants(&own()));
    assert_eq!(keeper.want(&BTreeSet::new()), [account("b")]);
}

#[test]
fn a_certificate_that_is_not_believed_any_more_is_renewed_at_once() {
    let mut keeper = keeper(7, &[]);
    hold(&mut keeper, &own(), 0, DAY);
    assert_eq!(keeper.due(after(1)), []);
    keeper.renew(&own());
    assert_eq!(keeper.due(after(1)), [own()]);
    hold(&mut keeper, &own(), 1, DAY);
    assert_eq!(keeper.counts(), (1, 0));
}

#[test]
fn late_is_when_a_quarter_is_left() {
    let mut keeper = keeper(8, &[]);
    hold(&mut keeper, &own(), 0, DAY);
    let lease = keeper.get(&own()).unwrap().lease.unwrap();
    assert!(!lease.is_late(NOW + DAY * 3 / 4 - 1));
    assert!(lease.is_late(NOW + DAY * 3 / 4));
    assert!(!lease.is_over(NOW + DAY) && lease.is_over(NOW + DAY + 1));
}
