use super::*;

/// A site with its own intermediate and control plane, cut off from everything else. Its machines restart on day 3.
#[test]
fn a_site_lives_through_seven_days_offline() {
    let dir = tempfile::tempdir().unwrap();
    let (_root, folder) = root_and_site(dir.path(), 30);
    let settings = AuthoritySettings::default();
    let site = Authority::open(&folder, &domain(), settings, at(START)).unwrap();
    let time = Time::new(START);
    let mut one = Sim::join(&site, "edge-1", &["web"], time.clone());
    let mut two = Sim::join(&site, "edge-2", &["cart", "db"], time.clone());
    let (mut serials, mut passed, mut issued) = (BTreeSet::new(), 0, 0);
    while passed < 7 * DAY {
        if passed == 3 * DAY {
            issued = two.issued;
            // At first only what is on the disk.
            one = Sim::start(one.disk, time.clone());
            two = Sim::start(two.disk, time.clone());
            call(&one.identities, "web", &two.identities, "cart").unwrap();
            one.meet(&site);
            two.meet(&site);
        }
        // Both have the same machine's clock.
        one.step(Some(&site), 600);
        two.step(Some(&site), 0);
        passed += 600;
        let peer = call(&one.identities, "web", &two.identities, "cart").unwrap();
        assert!(peer.not_after >= START + passed, "nothing expired is taken");
        serials.insert(peer.serial);
        assert_eq!(one.problems(), Vec::<String>::new(), "after {passed} s");
    }
    // Each certificate lives for a day and is renewed at half of it, or a little earlier.
    assert!((14..=18).contains(&serials.len()), "{}", serials.len());
    issued += two.issued;
    assert!((42..=60).contains(&issued), "{issued}");
}

/// Without a control plane to renew them, leaves serve until they expire, and not a second longer.
#[test]
fn a_node_on_its_own_serves_until_its_certificates_expire() {
    let dir = tempfile::tempdir().unwrap();
    let (_root, folder) = root_and_site(dir.path(), 30);
    let settings = AuthoritySettings::default();
    let site = Authority::open(&folder, &domain(), settings, at(START)).unwrap();
    let time = Time::new(START);
    let mut one = Sim::join(&site, "edge-1", &["web"], time.clone());
    let mut two = Sim::join(&site, "edge-2", &["cart"], time);
    let until = one.core.status(one.now()).serves_until.unwrap();
    assert_eq!(until, START + DAY);
    let mut seen = Vec::new();
    for passed in (300..=DAY + HOUR).step_by(300) {
        one.step(None, 300);
        two.step(None, 0);
        let called = call(&one.identities, "web", &two.identities, "cart");
        assert_eq!(
            called.is_ok(),
            passed <= DAY,
            "after {passed} s: {called:?}"
        );
        if passed > DAY {
            assert_eq!(called, Err("Expired".to_owned()));
        }
        let status = one.core.status(one.now());
        assert_eq!(status.serves_until, Some(until));
        assert!(!status.control.connected && status.control.for_s <= passed);
        let problems = status.problems.join("\n");
        if seen.last() != Some(&problems) {
            seen.push(problems);
        }
        // A problem soon, and again when renewal is due, at about half of the life.
        assert_eq!(
            status.problems.is_empty(),
            passed == 300,
            "after {passed} s"
        );
        let due = ["are due for renewal", "certificate has expired"];
        let is_due = |problem: &String| due.iter().any(|text| problem.contains(text));
        assert_eq!(
            status.problems.iter().any(is_due),
            passed >= one_renewal(&one),
            "after {passed} s"
        );
    }
    let late = "ns/shop/sa/web expires at 2026-05-29T20:26:40Z and was not renewed";
    assert!(
        seen.iter().any(|problems| problems.contains(late)),
        "{seen:#?}"
    );
    let last = seen.last().unwrap();
    assert!(
        last.contains("heddle token create edge-1") && last.contains("has expired at"),
        "{last}"
    );

    // The control plane is back: what a node may renew, it renews.
    one.core.link_up(one.now());
    one.step(Some(&site), 0);
    two.core.link_up(two.now());
    two.step(Some(&site), 0);
    assert!(call(&one.identities, "web", &two.identities, "cart").is_ok());
    assert_eq!(one.problems(), Vec::<String>::new());
}

/// Twelve hours are guaranteed, also for a site that is cut off when its certificates are about to be renewed.
#[test]
fn a_site_that_is_cut_off_just_before_it_renews_lasts_for_twelve_hours() {
    let dir = tempfile::tempdir().unwrap();
    let settings = AuthoritySettings::default();
    let authority = Authority::open(&dir.path().join("a"), &domain(), settings, at(START)).unwrap();
    let time = Time::new(START);
    let mut one = Sim::join(&authority, "edge-1", &["web"], time.clone());
    let mut two = Sim::join(&authority, "edge-2", &["cart"], time);
    let issued = (one.issued, two.issued);
    let leases = |sim: &Sim, of: &str| {
        let ids = [sim.core.own.clone(), id(of)];
        ids.map(|id| sim.core.keeper.get(&id).unwrap().lease.unwrap())
    };
    let leases = [leases(&one, "web"), leases(&two, "cart")].concat();
    for lease in &leases {
        assert!(lease.not_after - lease.renew_at >= 12 * HOUR, "{lease:?}");
    }
    let first = leases.iter().map(|lease| lease.renew_at).min().unwrap();
    one.step(Some(&authority), first - 1 - START);
    two.step(Some(&authority), 0);
    assert_eq!((one.issued, two.issued), issued, "none is renewed yet");
    for passed in (600..=12 * HOUR).step_by(600) {
        one.step(None, 600);
        two.step(None, 0);
        let called = call(&one.identities, "web", &two.identities, "cart");
        assert!(called.is_ok(), "after {passed} s: {called:?}");
    }
}

fn one_renewal(sim: &Sim) -> u64 {
    let own = sim.core.keeper.get(&sim.core.own).unwrap().lease.unwrap();
    own.renew_at - START
}

/// A machine without a clock battery starts at 1970, offline: it goes on with what is valid at the floor.
#[test]
fn a_reboot_at_1970_goes_on_with_what_is_valid_and_refuses_what_had_expired() {
    let dir = tempfile::tempdir().unwrap();
    let (_root, folder) = root_and_site(dir.path(), 30);
    let settings = AuthoritySettings::default();
    let site = Authority::open(&folder, &domain(), settings, at(START)).unwrap();
    let time = Time::new(START);
    let mut one = Sim::join(&site, "edge-1", &["web"], time.clone());
    let mut two = Sim::join(&site, "edge-2", &["cart"], time);
    let stale = Arc::clone(&one.identities);
    for _ in 0..3 * 24 {
        one.step(Some(&site), HOUR);
        two.step(Some(&site), 0);
    }
    let floor = one.disk.floor;
    assert!(floor > START + 2 * DAY, "the floor follows what was signed");

    let (first, second) = (Time::new(17), Time::new(5));
    let mut one = Sim::start(one.disk, first);
    let mut two = Sim::start(two.disk, second);
    let peer = call(&one.identities, "web", &two.identities, "cart").unwrap();
    assert!(peer.not_after > floor);
    let problems = one.problems();
    assert!(
        problems[0].contains("the system's clock is behind"),
        "{problems:?}"
    );
    assert!(one.core.status(one.now()).clock.degraded);
    // What expired before the floor is refused, although 1970 is long before that.
    let refused = call(&stale, "web", &two.identities, "cart").unwrap_err();
    assert!(refused.contains("xpired"), "{refused}");

    // Time does not stand still: certificates expire on time.
    for _ in 0..25 {
        one.step(None, HOUR);
        two.step(None, HOUR);
    }
    let called = call(&one.identities, "web", &two.identities, "cart");
    assert_eq!(called, Err("Expired".to_owned()));

    // The control plane is back; its certificates tell the time again.
    let now = START + 5 * DAY;
    let own = issue(&site, None, &one.core.own, now).unwrap();
    let one_own = one.core.own.clone();
    one.core.issued(&one_own, own, one.now()).unwrap();
    assert!(one.core.clock.now() >= now - HOUR);
}

/// Across a restart, the floor on disk keeps expired certificates out.
#[test]
fn the_floor_outlives_the_process_and_is_not_written_all_the_time() {
    let dir = tempfile::tempdir().unwrap();
    let settings = AuthoritySettings::default();
    let authority = Authority::open(&dir.path().join("a"), &domain(), settings, at(START)).unwrap();
    let time = Time::new(START);
    let mut one = Sim::join(&authority, "edge-1", &["web"], time);
    let mut written = BTreeSet::new();
    for _ in 0..DAY / 30 {
        one.step(None, 30);
        written.insert(one.disk.floor);
    }
    assert!(written.len() <= 150, "{}", written.len());
    // The floor rises with the uptime.
    assert!(one.disk.floor >= START + DAY - HOUR - FLOOR_STEP_S);
    let again = Sim::start(one.disk, Time::new(0));
    let client = again
        .identities
        .connect(Some(&account("web")), &account("cart"), Protocol::Link);
    assert!(client.is_ok(), "valid for an hour still");
}

/// A refused node gets the reason once: later connections are closed without one.
#[test]
fn why_a_node_was_refused_is_said_until_it_is_let_in_again() {
    let dir = tempfile::tempdir().unwrap();
    let settings = AuthoritySettings::default();
    let authority = Authority::open(&dir.path().join("a"), &domain(), settings, at(START)).unwrap();
    let mut one = Sim::join(&authority, "edge-1", &["web"], Time::new(START));
    let now = one.now();
    let problem = |one: &Sim| one.core.status(one.now()).control.problem;
    one.core.link_refused("on the deny-list".to_owned(), now);
    assert_eq!(problem(&one).as_deref(), Some("on the deny-list"));
    for _ in 0..2 {
        one.core.link_down("transport error".to_owned(), now);
        let expected = "on the deny-list; since then: transport error";
        assert_eq!(problem(&one).as_deref(), Some(expected));
        let expected = "no data from the control plane: on the deny-list".to_owned();
        assert!(one.problems().contains(&expected), "{:?}", one.problems());
    }
    one.core.link_up(now);
    assert_eq!(problem(&one), None);
    one.core.link_down("transport error".to_owned(), now);
    assert_eq!(problem(&one).as_deref(), Some("transport error"));
}
