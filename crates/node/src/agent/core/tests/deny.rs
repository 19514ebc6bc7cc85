use super::*;

fn authority(dir: &Path) -> Authority {
    let settings = AuthoritySettings::default();
    Authority::open(&dir.join("a"), &domain(), settings, at(START)).unwrap()
}

fn deny(authority: &Authority, what: Denied, life: u64) {
    let entry = DenyEntry {
        reason: "test".to_owned(),
        expires: START + life,
    };
    authority.deny(what, entry, at(START)).unwrap();
}

#[test]
fn an_entry_of_the_deny_list_holds_until_it_ends() {
    let dir = tempfile::tempdir().unwrap();
    let authority = authority(dir.path());
    let time = Time::new(START);
    let mut one = Sim::join(&authority, "edge-1", &["web"], time.clone());
    let mut two = Sim::join(&authority, "edge-2", &["cart"], time.clone());
    assert!(call(&one.identities, "web", &two.identities, "cart").is_ok());

    deny(&authority, Denied::Identity(id("web")), HOUR);
    two.meet(&authority);
    two.step(Some(&authority), 0);
    let refused = call(&one.identities, "web", &two.identities, "cart").unwrap_err();
    assert!(refused.contains("deny-list"), "{refused}");
    // Entries expire without a message from the control plane, and a restart does not forget them.
    let mut two = Sim::start(two.disk, time);
    two.step(None, HOUR - 1);
    assert!(call(&one.identities, "web", &two.identities, "cart").is_err());
    assert_eq!(two.core.sleep(two.now()), Duration::from_secs(1));
    two.step(None, 1);
    one.step(None, 0);
    assert!(call(&one.identities, "web", &two.identities, "cart").is_ok());
}

/// A denied certificate is reported although most of its life is left: no node accepts it any more.
#[test]
fn a_denied_identity_of_ours_is_something_to_look_at() {
    let dir = tempfile::tempdir().unwrap();
    let authority = authority(dir.path());
    let mut one = Sim::join(&authority, "edge-1", &["web"], Time::new(START));
    let status = one.core.status(one.now());
    assert_eq!(status.problems, [""; 0]);
    deny(&authority, Denied::Identity(id("web")), HOUR);
    one.meet(&authority);
    one.step(Some(&authority), 1);
    let status = one.core.status(one.now());
    let expected = format!("{}: it is on the deny-list: no node talks to it", id("web"));
    assert_eq!(status.problems, [expected]);
    let refused = |held: &crate::status::HeldStatus| held.refused.is_some();
    let refused: Vec<bool> = status.identities.iter().map(refused).collect();
    assert_eq!(refused, [false, true]);
    one.step(Some(&authority), HOUR);
    assert_eq!(one.core.status(one.now()).problems, [""; 0]);
}

/// A stolen key is denied by its certificate's serial number: the workload goes on with a new certificate.
#[test]
fn a_denied_certificate_of_ours_is_renewed_at_once() {
    let dir = tempfile::tempdir().unwrap();
    let authority = authority(dir.path());
    let time = Time::new(START);
    let mut one = Sim::join(&authority, "edge-1", &["web"], time.clone());
    let mut two = Sim::join(&authority, "edge-2", &["cart"], time);
    let stolen = Arc::clone(&one.identities);
    let peer = call(&stolen, "web", &two.identities, "cart").unwrap();
    let serial = Serial::from_be_bytes(&peer.serial).unwrap();
    deny(&authority, Denied::Serial(serial), DAY);
    for sim in [&mut one, &mut two] {
        sim.meet(&authority);
        sim.step(Some(&authority), 1);
    }
    assert_ne!(
        call(&one.identities, "web", &two.identities, "cart")
            .unwrap()
            .serial,
        peer.serial
    );
    assert!(
        call(&stolen, "web", &two.identities, "cart")
            .unwrap_err()
            .contains("deny-list")
    );
}

#[test]
fn a_control_plane_whose_certificate_is_denied_is_not_believed_any_more() {
    let dir = tempfile::tempdir().unwrap();
    let authority = authority(dir.path());
    let mut one = Sim::join(&authority, "edge-1", &[], Time::new(START));
    let shown = issue(&authority, None, &SpiffeId::control(domain()), START).unwrap();
    let peer = Peer {
        id: shown.id().clone(),
        node: None,
        serial: shown.serial().into(),
        not_before: shown.not_before(),
        not_after: shown.not_after(),
    };
    assert_eq!(one.core.check_peer(&peer), Ok(()));
    let serial = Serial::from_be_bytes(shown.serial()).unwrap();
    deny(&authority, Denied::Serial(serial), DAY);
    one.meet(&authority);
    assert_eq!(one.core.check_peer(&peer), Err(Refusal::Denied));
}
