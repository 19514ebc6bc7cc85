//! The known content of the registry after given answers of etcd, which never empties by accident.

use std::time::{Duration, Instant};

use super::room::{MOST_OF_NAMESPACE, MOST_OF_STRAY};
use super::*;

mod simulated;

const CLUSTER: u64 = 7;

/// A valid value, distinguished from others by its port.
fn value(port: u16) -> Vec<u8> {
    format!(
        r#"{{"apiVersion":"heddle.dev/v1alpha1","kind":"LocalWorkload","spec":{{"address":"10.0.0.1","ports":[{{"port":{port}}}]}}}}"#
    )
    .into_bytes()
}

fn key(name: &str) -> Vec<u8> {
    format!("/heddle/v1/providers/shop/web/{name}").into_bytes()
}

fn kv(name: &str, value: Vec<u8>, lease: i64, modified: i64) -> Kv {
    Kv {
        key: key(name),
        value,
        lease,
        created: modified,
        modified,
    }
}

fn good(name: &str, revision: i64) -> Kv {
    kv(name, value(80), 1, revision)
}

fn list(revision: i64, kvs: Vec<Kv>) -> Page {
    Page {
        cluster: CLUSTER,
        revision,
        kvs,
        more: false,
    }
}

fn gone(name: &str, modified: i64) -> Change {
    Change::Delete {
        key: key(name),
        modified,
    }
}

/// A core that has listed these at revision 10.
fn listed(kvs: Vec<Kv>) -> Core {
    let mut core = Core::new(Layout::default());
    core.begin();
    let next = core.page(Instant::now(), list(10, kvs));
    assert_eq!(next, Next::Watch { revision: 11 });
    core
}

/// The names of the current providers; `None` when nothing has changed.
fn names(core: &mut Core) -> Option<Vec<String>> {
    core.check_invariants();
    let providers = core.providers()?;
    let names = providers.entries.iter();
    Some(names.map(|entry| entry.key.provider.to_string()).collect())
}

fn all(names: &[&str]) -> Option<Vec<String>> {
    Some(names.iter().map(ToString::to_string).collect())
}

#[test]
fn a_list_is_read_page_by_page_at_one_revision() {
    let mut core = Core::new(Layout::default());
    let first = core.begin();
    let from = b"/heddle/v1/providers/".to_vec();
    assert_eq!(first, Next::List { from, revision: 0 });
    let now = Instant::now();
    let mut page = list(10, vec![good("a", 3), good("b", 4)]);
    page.more = true;
    let mut from = key("b");
    from.push(0);
    assert_eq!(core.page(now, page), Next::List { from, revision: 10 });
    // Nothing is passed on before the list is complete.
    assert_eq!(names(&mut core), None);
    // The store has moved to a later revision; the list stays at that of its first page.
    let next = core.page(now, list(15, vec![good("c", 5)]));
    assert_eq!(next, Next::Watch { revision: 11 });
    assert_eq!(names(&mut core), all(&["a", "b", "c"]));
    assert_eq!(core.revision(), 10);
    assert_eq!(names(&mut core), None);
}

#[test]
fn an_empty_registry_is_known_to_be_empty() {
    let mut core = listed(Vec::new());
    assert_eq!(names(&mut core), all(&[]));
    // A page without keys is the last one, even with `more` set.
    let mut page = list(10, Vec::new());
    page.more = true;
    core.begin();
    assert_eq!(
        core.page(Instant::now(), page),
        Next::Watch { revision: 11 }
    );
}

#[test]
fn changes_take_effect_in_their_order() {
    let mut core = listed(vec![good("a", 3)]);
    names(&mut core);
    let next = core.changed(12, vec![Change::Put(good("b", 11)), gone("a", 12)]);
    assert_eq!(next, None);
    assert_eq!(names(&mut core), all(&["b"]));
    // A change older than the known value is ignored.
    core.changed(
        13,
        vec![Change::Put(kv("b", value(81), 1, 9)), gone("b", 10)],
    );
    assert_eq!(names(&mut core), None);
    assert_eq!(core.revision(), 13);
    // The same value once more, as a restarted registrar writes it, is no change either.
    core.changed(
        14,
        vec![Change::Put(Kv {
            created: 11,
            ..good("b", 14)
        })],
    );
    assert_eq!(names(&mut core), None);
    core.changed(15, vec![gone("b", 15)]);
    assert_eq!(names(&mut core), all(&[]));
}

#[test]
fn silence_removes_nothing_and_the_next_list_does() {
    let mut core = listed(vec![good("a", 3), good("b", 4)]);
    names(&mut core);
    core.lost();
    assert_eq!(
        core.expire(Instant::now() + Duration::from_secs(86_400)),
        None
    );
    assert_eq!(names(&mut core), None);
    // A late change belongs to a watch that has ended.
    assert_eq!(core.changed(20, vec![gone("a", 20)]), None);
    assert_eq!(names(&mut core), None);
    core.begin();
    core.page(Instant::now(), list(30, vec![good("b", 4), good("c", 25)]));
    assert_eq!(names(&mut core), all(&["b", "c"]));
}

#[test]
fn half_a_list_removes_nothing() {
    let mut core = listed(vec![good("a", 3), good("z", 4)]);
    names(&mut core);
    core.begin();
    let mut page = list(30, vec![good("b", 20)]);
    page.more = true;
    core.page(Instant::now(), page);
    core.lost();
    assert_eq!(names(&mut core), all(&["a", "b", "z"]));
    core.begin();
    core.page(Instant::now(), list(31, vec![good("b", 20)]));
    assert_eq!(names(&mut core), all(&["b"]));
}

#[test]
fn a_store_that_lost_everything_is_given_time() {
    let now = Instant::now();
    for (cluster, revision) in [(CLUSTER, 1), (CLUSTER + 1, 500)] {
        let mut core = listed(vec![good("a", 3), good("b", 4)]);
        names(&mut core);
        core.lost();
        core.begin();
        let empty = Page {
            cluster,
            revision,
            kvs: Vec::new(),
            more: false,
        };
        core.page(now, empty.clone());
        assert_eq!(names(&mut core), None, "nothing is gone yet");
        assert_eq!(core.expire(now), Some(now + GRACE));
        // One provider lives and registers again, with a smaller revision than before.
        core.changed(
            revision + 1,
            vec![Change::Put(kv("a", value(81), 9, revision + 1))],
        );
        assert_eq!(names(&mut core), all(&["a", "b"]));
        // Another list does not shorten the grace.
        core.begin();
        let again = Page {
            revision: revision + 1,
            kvs: vec![kv("a", value(81), 9, revision + 1)],
            ..empty
        };
        core.page(now + GRACE / 2, again);
        assert_eq!(names(&mut core), None);
        assert_eq!(core.expire(now + GRACE), None);
        assert_eq!(names(&mut core), all(&["a"]));
    }
}

#[test]
fn a_list_counts_whatever_its_revisions_say() {
    let mut core = listed(vec![good("a", 9), good("b", 10)]);
    names(&mut core);
    core.begin();
    // Another store with the same revision: one key has another value, and one has an older revision.
    let other = kv("a", value(81), 1, 9);
    core.page(
        Instant::now(),
        list(12, vec![other.clone(), kv("b", b"{}".to_vec(), 1, 2)]),
    );
    let providers = core.providers().expect("a change");
    assert_eq!(providers.entries.len(), 1);
    let first = providers.entries.iter().next().expect("one");
    assert_eq!(first.value, other.value);
}

#[test]
fn what_was_lost_and_is_removed_is_gone_at_once() {
    let now = Instant::now();
    let mut core = listed(vec![good("a", 3)]);
    names(&mut core);
    core.begin();
    core.page(now, list(1, Vec::new()));
    core.changed(3, vec![Change::Put(good("a", 2)), gone("a", 3)]);
    assert_eq!(names(&mut core), all(&[]));
    assert_eq!(core.expire(now), None);
}

#[test]
fn what_is_wrong_is_counted_by_why_though_not_all_is_spelled_out() {
    let mut wrong: Vec<Kv> = (0..120)
        .map(|n| kv(&format!("wrong{n}"), b"{}".to_vec(), 1, n))
        .collect();
    wrong.push(good("a", 3));
    wrong.push(kv("stays", value(80), 0, 4));
    wrong.push(Kv {
        key: b"/heddle/v1/providers/shop/web".to_vec(),
        ..good("x", 5)
    });
    let providers = listed(wrong).providers().expect("news");
    let expected = [(Cause::Key, 1), (Cause::Lease, 1), (Cause::Value, 120)];
    assert_eq!(providers.by_cause, BTreeMap::from(expected));
    assert!(providers.problems().len() < 110);
    assert_eq!((providers.count(), providers.wrong.len()), (1, 121));
}

#[test]
fn the_last_good_value_goes_on_while_its_lease_does() {
    let bad = |lease, modified| Kv {
        created: 3,
        ..kv("a", b"{}".to_vec(), lease, modified)
    };
    let mut core = listed(vec![good("a", 3)]);
    names(&mut core);
    core.changed(11, vec![Change::Put(bad(1, 11))]);
    let providers = core.providers().expect("a problem is news");
    assert_eq!((providers.count(), providers.problems().len()), (1, 1));
    let problem = providers.problems()[0].to_string();
    assert!(
        problem.starts_with("etcd:/heddle/v1/providers/shop/web/a: warning: "),
        "{problem}"
    );
    // A valid value removes the problem.
    core.changed(
        12,
        vec![Change::Put(Kv {
            created: 3,
            ..good("a", 12)
        })],
    );
    let providers = core.providers().expect("that it is gone, too");
    assert_eq!((providers.count(), providers.problems().len()), (1, 0));
    // A wrong value under another lease does not keep the earlier valid one.
    core.changed(13, vec![Change::Put(bad(2, 13))]);
    let providers = core.providers().expect("a change");
    assert_eq!((providers.count(), providers.problems().len()), (0, 1));
    // The end of the lease removes the key and its problem.
    core.changed(14, vec![gone("a", 14)]);
    let providers = core.providers().expect("a change");
    assert_eq!((providers.count(), providers.problems().len()), (0, 0));
}

#[test]
fn a_key_that_came_anew_has_no_last_good_value() {
    let mut core = listed(vec![good("a", 3)]);
    names(&mut core);
    core.lost();
    core.begin();
    // The key was deleted and created again meanwhile, with the same lease.
    core.page(
        Instant::now(),
        list(20, vec![kv("a", b"{}".to_vec(), 1, 15)]),
    );
    assert_eq!(names(&mut core), all(&[]));
}

#[test]
fn what_is_no_provider_is_a_problem() {
    let stray = |key: &[u8]| Kv {
        key: key.to_vec(),
        ..good("a", 3)
    };
    for (kv, expected) in [
        (kv("a", value(80), 0, 3), "it has no lease"),
        (
            stray(b"/heddle/v1/providers/shop/web"),
            "this is no provider's key",
        ),
        (stray(b"/heddle/v1/providers/SHOP/web/a"), "is no"),
        (stray(b"/heddle/v1/providers/\x1b[2J\xff/web/a"), "is no"),
        (kv("a", vec![b'x'; 20 << 10], 1, 3), "more than 16 KiB"),
    ] {
        let mut core = listed(vec![kv]);
        let providers = core.providers().expect("a list");
        assert_eq!(providers.count(), 0);
        let said = providers.problems()[0].to_string();
        assert!(said.contains(expected) && !said.contains('\x1b'), "{said}");
    }
}

#[test]
fn many_problems_are_counted() {
    let wrong = |n: i64| kv(&format!("a{n}"), Vec::new(), 1, n + 1);
    let mut core = listed((0..150).map(wrong).collect());
    let providers = core.providers().expect("a list");
    assert_eq!(providers.problems().len(), MAX_PROBLEMS + 1);
    let last = providers.problems()[MAX_PROBLEMS].to_string();
    assert!(last.contains("50 more values are wrong"), "{last}");
}

/// A valid value in another namespace.
fn other(namespace: &str, name: &str) -> Kv {
    let key = format!("/heddle/v1/providers/{namespace}/web/{name}");
    Kv {
        key: key.into_bytes(),
        ..good(name, 4)
    }
}

/// The problems that report a full registry or share.
fn too_much(providers: &Providers) -> Vec<String> {
    let problems = providers.problems().iter();
    let too_much = problems.filter(|problem| problem.reason.contains("more than"));
    too_much.map(ToString::to_string).collect()
}

#[test]
fn a_namespace_that_is_too_full_leaves_the_others_their_room() {
    // Invalid values count as well, and are quick to validate.
    let wrong = |n: usize| kv(&format!("a{n:05}"), Vec::new(), 1, 3);
    let most = MOST_OF_NAMESPACE.keys;
    let full = || (0..MOST.keys).map(wrong);
    let mut core = listed(full().chain([good("z", 4), other("zoo", "a")]).collect());
    core.check_invariants();
    let providers = core.providers().expect("a list");
    assert_eq!(providers.count(), 1);
    let said = too_much(&providers);
    let [said] = &said[..] else {
        panic!("{said:#?}");
    };
    let expected = "etcd:/heddle/v1/providers/shop/: warning: one namespace has more than 2000";
    assert!(said.starts_with(expected), "{said}");
    // A deletion in another namespace makes no room in this one; the other namespace has room.
    let gone_elsewhere = Change::Delete {
        key: other("zoo", "a").key,
        modified: 11,
    };
    let changes = vec![gone_elsewhere, Change::Put(other("zoo", "b"))];
    assert_eq!(core.changed(11, changes), None);
    assert_eq!(names(&mut core), all(&["b"]));
    let next = core.changed(12, vec![gone("a00000", 12)]);
    assert!(matches!(next, Some(Next::List { .. })));
    let kvs = (1..most).map(wrong).chain([good("z", 4)]).collect();
    core.page(Instant::now(), list(12, kvs));
    let providers = core.providers().expect("a change");
    assert_eq!((providers.count(), too_much(&providers).len()), (1, 0));
}

#[test]
fn one_namespace_has_no_more_than_its_share_of_the_bytes() {
    let large = |n: i64| kv(&format!("a{n:05}"), large_value(), 1, n + 1);
    let count = i64::try_from(MOST_OF_NAMESPACE.bytes / large_value().len()).expect("few");
    let kvs = (0..count + 10).map(large).chain([other("zoo", "a")]);
    let mut core = listed(kvs.collect());
    core.check_invariants();
    let providers = core.providers().expect("a list");
    assert!((1..=count + 1).contains(&i64::try_from(providers.count()).expect("few")));
    assert_eq!(too_much(&providers).len(), 1);
    let last = providers.entries.iter().next_back().expect("one");
    assert_eq!(last.key.namespace.as_str(), "zoo");
}

/// A valid value, close to the size limit.
fn large_value() -> Vec<u8> {
    let mut value = value(80);
    value.resize(MAX_VALUE_BYTES - 1, b' ');
    value
}

#[test]
fn all_namespaces_together_are_bounded() {
    let namespaces = MOST.keys / MOST_OF_NAMESPACE.keys;
    let wrong = |n: usize| Kv {
        value: Vec::new(),
        ..other(&format!("n{}", n % namespaces), &format!("p{n}"))
    };
    let kvs = (0..MOST.keys).map(wrong).chain([other("zoo", "a")]);
    let mut core = listed(kvs.collect());
    core.check_invariants();
    let providers = core.providers().expect("a list");
    assert_eq!(providers.count(), 0);
    let said = too_much(&providers);
    let [said] = &said[..] else {
        panic!("{said:#?}");
    };
    let most = format!("more than {} providers", MOST.keys);
    assert!(said.contains(&most), "{said}");
    // A deletion makes room for every namespace.
    let gone = Change::Delete {
        key: wrong(0).key,
        modified: 11,
    };
    let next = core.changed(11, vec![gone]);
    assert!(matches!(next, Some(Next::List { .. })));
    let kvs = (1..MOST.keys).map(wrong).chain([other("zoo", "a")]);
    core.page(Instant::now(), list(11, kvs.collect()));
    let providers = core.providers().expect("a change");
    assert_eq!((providers.count(), too_much(&providers).len()), (1, 0));
}

#[test]
fn keys_that_are_no_providers_take_no_providers_room() {
    let stray = |n: usize| Kv {
        key: format!("/heddle/v1/providers/junk{n:05}").into_bytes(),
        ..good("a", 3)
    };
    let junk = |from: usize| (from..MOST.keys + 1).map(stray);
    let mut core = listed(junk(0).chain([good("z", 4)]).collect());
    core.check_invariants();
    let providers = core.providers().expect("a list");
    assert_eq!(providers.count(), 1);
    assert_eq!(providers.problems().len(), MOST_OF_STRAY.keys + 1);
    let said = too_much(&providers);
    let [said] = &said[..] else {
        panic!("{said:#?}");
    };
    assert!(said.contains("more than 100 keys"), "{said}");
    // Only when every held stray key is gone is the registry listed again.
    let gone = |n: usize| Change::Delete {
        key: stray(n).key,
        modified: 11,
    };
    let held = MOST_OF_STRAY.keys;
    assert_eq!(core.changed(11, (1..held).map(gone).collect()), None);
    let next = core.changed(11, vec![gone(0)]);
    assert!(matches!(next, Some(Next::List { .. })));
    core.page(Instant::now(), list(11, vec![good("z", 4)]));
    let providers = core.providers().expect("a change");
    assert_eq!((providers.count(), providers.problems().len()), (1, 0));
}

#[test]
fn a_namespace_that_is_other_providers_now_has_room_for_them() {
    let all_of = |begin: &str, at: i64| {
        let begin = begin.to_owned();
        (0..MOST_OF_NAMESPACE.keys).map(move |n| kv(&format!("{begin}{n}"), Vec::new(), 1, at))
    };
    let mut core = listed(all_of("a", 3).collect());
    core.lost();
    core.begin();
    let now = Instant::now();
    // Providers that ended while the store was away are still held when the new ones are listed.
    let came: Vec<Kv> = all_of("b", 12).collect();
    let next = core.page(now, list(20, came.clone()));
    assert!(matches!(next, Next::List { revision: 0, .. }), "{next:?}");
    let next = core.page(now, list(21, came));
    assert_eq!(next, Next::Watch { revision: 22 });
    core.check_invariants();
    assert_eq!(core.held.len(), MOST_OF_NAMESPACE.keys);
    assert!(too_much(&core.providers().expect("a change")).is_empty());
}

#[test]
fn long_keys_and_what_is_said_of_values_are_bounded() {
    let long = |n: u8| Kv {
        key: [key(&format!("x{n}")), vec![b'y'; 100 << 10]].concat(),
        ..good("a", 3)
    };
    let mut core = listed((0..40).map(long).chain([good("z", 4)]).collect());
    let providers = core.providers().expect("a list");
    core.check_invariants();
    assert_eq!(providers.problems().len(), 10 + 1);
    for problem in providers.problems() {
        let said = problem.to_string();
        assert!(said.len() < 4 * MAX_SHOWN, "{} bytes", said.len());
    }
    let names = providers.entries.iter().map(|entry| entry.key.to_string());
    assert_eq!(names.collect::<Vec<_>>(), ["shop/web/z"]);
}
