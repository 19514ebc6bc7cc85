use super::*;

fn authority(dir: &Path) -> Authority {
    let settings = AuthoritySettings::default();
    Authority::open(&dir.join("a"), &domain(), settings, at(START)).unwrap()
}

/// A refused request is retried, less and less often; the old certificate stays in use meanwhile.
#[test]
fn a_renewal_that_fails_is_tried_again_and_costs_nothing_before_the_certificate_expires() {
    let dir = tempfile::tempdir().unwrap();
    let authority = authority(dir.path());
    let elsewhere = tempfile::tempdir().unwrap();
    let settings = AuthoritySettings::default();
    let stranger = Authority::open(&elsewhere.path().join("a"), &domain(), settings, at(START));
    let stranger = stranger.unwrap();
    let time = Time::new(START);
    let mut one = Sim::join(&authority, "edge-1", &["web"], time.clone());
    let two = Sim::join(&authority, "edge-2", &["cart"], time);
    // From now on the answers come from an authority that no node here trusts.
    for _ in 0..DAY * 3 / 4 / 60 {
        one.step(Some(&stranger), 60);
    }
    let status = one.core.status(one.now());
    assert_eq!(status.renewals, 0);
    // Two identities for more than six hours, in the end every five minutes.
    assert!(
        (100..300).contains(&status.renewal_failures),
        "{}",
        status.renewal_failures
    );
    assert!(call(&one.identities, "web", &two.identities, "cart").is_ok());
    let problems = status.problems.join("\n");
    assert!(
        problems.contains("was not renewed: no trusted root signed"),
        "{problems}"
    );

    for _ in 0..6 {
        one.step(Some(&authority), 60);
    }
    let status = one.core.status(one.now());
    assert_eq!((status.renewals, status.problems.len()), (2, 0));
}

/// Half of the life is left, but there is a problem all the same.
#[test]
fn several_attempts_that_fail_and_a_control_plane_that_is_away_are_something_to_look_at() {
    let dir = tempfile::tempdir().unwrap();
    let authority = authority(dir.path());
    let mut one = Sim::join(&authority, "edge-1", &["web"], Time::new(START));
    let mut seen = Vec::new();
    for attempt in 1..=3 {
        one.core.failed(&id("web"), "busy".to_owned(), one.now());
        let problems = one.core.status(one.now()).problems;
        seen.push((attempt, problems));
    }
    let expected = format!("{} was not renewed in 3 attempts: busy", id("web"));
    assert_eq!(seen, [(1, vec![]), (2, vec![]), (3, vec![expected])]);
    one.step(Some(&authority), 13 * HOUR);
    assert_eq!(one.core.status(one.now()).problems, [""; 0]);

    // A restart of the control plane takes a moment; only a longer outage is reported.
    one.step(None, 1);
    one.step(None, 60);
    assert_eq!(one.core.status(one.now()).problems, [""; 0]);
    one.step(None, 1);
    let problems = one.core.status(one.now()).problems;
    assert!(
        matches!(&problems[..], [one] if one.starts_with("the control plane was not reached for 1 min 1 s: ")),
        "{problems:?}"
    );
}

/// Nodes that joined in the same second do not renew in the same second.
#[test]
fn nodes_that_joined_together_do_not_renew_together() {
    let dir = tempfile::tempdir().unwrap();
    let authority = authority(dir.path());
    let own = SpiffeId::node(domain(), NodeName::parse("edge-1").unwrap());
    let leaf = issue(&authority, None, &own, START).unwrap();
    let validity = (leaf.not_before(), leaf.not_after());
    let now = Moment {
        unix_s: START,
        elapsed: Duration::ZERO,
    };
    let mut per_minute: BTreeMap<u64, u32> = BTreeMap::new();
    for seed in 0..10_000 {
        let mut keeper = Keeper::new(own.clone(), Random::new(seed));
        keeper.hold(&own, validity, Some(now));
        let wait = keeper.next(now).unwrap();
        *per_minute.entry(wait.as_secs() / 60).or_default() += 1;
    }
    let busiest = per_minute.values().max().unwrap();
    // A tenth of a day is 144 minutes: 70 a minute, were they spread evenly.
    assert!(
        *busiest < 120 && per_minute.len() > 130,
        "{busiest} in {}",
        per_minute.len()
    );
}

/// A root is replaced while everything goes on, and a node that was away for the switch catches up.
#[test]
fn a_new_root_is_followed() {
    let dir = tempfile::tempdir().unwrap();
    let authority = authority(dir.path());
    let time = Time::new(START);
    let mut one = Sim::join(&authority, "edge-1", &["web"], time.clone());
    let mut two = Sim::join(&authority, "edge-2", &["cart"], time);
    authority
        .begin_rotation(&NextRoot::Make, at(START))
        .unwrap();
    for sim in [&mut one, &mut two] {
        sim.meet(&authority);
        sim.step(Some(&authority), 1);
    }
    assert_eq!(two.core.trusted().bundle.roots.len(), 2);
    authority
        .switch_rotation(&[], false, at(START + 10))
        .unwrap();
    two.meet(&authority);
    for _ in 0..13 {
        two.step(Some(&authority), HOUR);
    }
    // One node's certificate is still from the old root, the other's from the new one; the status shows which.
    let roots = |sim: &Sim| -> Vec<String> {
        let all = sim.core.status(sim.now()).identities;
        all.into_iter()
            .filter_map(|held| held.root_sha256)
            .collect()
    };
    let ([old, _], [new, _]) = (&roots(&one)[..], &roots(&two)[..]) else {
        panic!("two identities each, whose root is known");
    };
    assert_ne!(old, new);
    assert!(call(&one.identities, "web", &two.identities, "cart").is_ok());
    // Forced: no node accepts certificates of the old root any more, and new ones are requested at once.
    authority
        .finish_rotation(&[], true, at(START + 14 * HOUR))
        .unwrap();
    one.meet(&authority);
    two.meet(&authority);
    one.step(Some(&authority), 1);
    two.step(Some(&authority), 1);
    assert_eq!(one.core.trusted().bundle.roots.len(), 1);
    assert_eq!(roots(&one), roots(&two));
    assert!(call(&one.identities, "web", &two.identities, "cart").is_ok());
}

/// A certificate from an older authority, which did not mark nodes' certificates: other nodes refuse it, however long
/// it lasts.
#[test]
fn a_certificate_that_is_not_marked_as_a_nodes_is_renewed_at_once() {
    let dir = tempfile::tempdir().unwrap();
    let authority = authority(dir.path());
    let time = Time::new(START);
    let two = Sim::join(&authority, "edge-2", &["cart"], time.clone());
    let mut one = Sim::join(&authority, "edge-1", &["web"], time.clone());
    let old = issue(&authority, None, &id("web"), START).unwrap();
    one.disk.leaves.insert(id("web"), old);
    let mut one = Sim::start(one.disk, time);
    assert!(call(&one.identities, "web", &two.identities, "cart").is_err());
    let problems = one.problems().join("\n");
    assert!(problems.contains("not marked as a node's"), "{problems}");
    one.meet(&authority);
    one.step(Some(&authority), 1);
    assert_eq!(one.issued, 1);
    assert!(call(&one.identities, "web", &two.identities, "cart").is_ok());
}

#[test]
fn a_certificate_for_another_identity_is_refused() {
    let dir = tempfile::tempdir().unwrap();
    let authority = authority(dir.path());
    let mut one = Sim::join(&authority, "edge-1", &["web"], Time::new(START));
    let other = issue(&authority, Some(&one.node()), &id("cart"), START).unwrap();
    let refused = one.core.issued(&id("web"), other, one.now()).unwrap_err();
    assert!(
        matches!(refused, Refusal::WrongIdentity { .. }),
        "{refused}"
    );
}

/// Identities of workloads that left the node are dropped; those that stay keep their certificates.
#[test]
fn a_mesh_says_which_identities_are_held() {
    let dir = tempfile::tempdir().unwrap();
    let authority = authority(dir.path());
    let mut one = Sim::join(&authority, "edge-1", &["web", "cart"], Time::new(START));
    assert_eq!(one.issued, 2);
    assert_eq!(one.core.want(&mesh(&["cart", "db"])), [id("web")]);
    one.step(Some(&authority), 1);
    assert_eq!(one.issued, 3);
    let connects = |sim: &Sim, name| {
        sim.identities
            .connect(Some(&account(name)), &account("x"), Protocol::Link)
    };
    assert!(connects(&one, "cart").is_ok() && connects(&one, "db").is_ok());
    assert_eq!(connects(&one, "web").unwrap_err(), NoIdentity::Missing);
}
