use super::*;

fn node_id(name: &str) -> SpiffeId {
    SpiffeId::node(domain(), node(name))
}

fn names(authority: &Authority, now: u64) -> Vec<String> {
    let members = authority.members(at(now));
    members.iter().map(|m| m.node.to_string()).collect()
}

fn join(authority: &Authority, name: &str) {
    let token = authority.create_token(&node(name), DEFAULT_TOKEN_LIFE, at(NOW));
    let token = token.unwrap();
    let secret = (&token.id, &token.secret);
    authority
        .join(secret, &node(name), &request(), at(NOW))
        .unwrap();
}

#[test]
fn who_joined_or_renewed_is_known_until_its_certificate_expires() {
    let place = Place::new();
    let authority = place.open();
    join(&authority, "n1");
    join(&authority, "n2");
    authority
        .issue(&workload("shop", "cart"), &request(), at(NOW))
        .unwrap();
    assert_eq!(names(&authority, NOW), ["n1", "n2"]);
    let later = NOW + DAY / 2;
    authority
        .issue(&node_id("n2"), &request(), at(later))
        .unwrap();
    drop(authority);

    // A restart keeps every node whose certificate has not expired.
    let authority = place.try_open(NOW + DAY).unwrap();
    assert_eq!(names(&authority, NOW + DAY), ["n2"]);
    assert_eq!(authority.members(at(NOW + DAY))[0].until, later + DAY);
    let files = std::fs::read_dir(place.dir.join("nodes")).unwrap();
    assert_eq!(files.count(), 1);
}

#[test]
fn a_node_that_cannot_be_written_down_gets_nothing() {
    let place = Place::new();
    let authority = place.open();
    std::fs::remove_dir(place.dir.join("nodes")).unwrap();
    let token = authority.create_token(&node("n1"), DEFAULT_TOKEN_LIFE, at(NOW));
    let token = token.unwrap();
    let secret = (&token.id, &token.secret);
    let refused = authority.join(secret, &node("n1"), &request(), at(NOW));
    assert!(matches!(
        refused,
        Err(JoinError::Issue(IssueError::NotDurable(_)))
    ));
    assert!(names(&authority, NOW).is_empty());
}

#[test]
fn a_file_of_another_node_is_an_error_that_names_it() {
    let place = Place::new();
    let authority = place.open();
    join(&authority, "n1");
    drop(authority);
    let mut files = std::fs::read_dir(place.dir.join("nodes")).unwrap();
    let name = files.next().unwrap().unwrap().file_name();
    let name = format!("nodes/{}", name.to_str().unwrap());
    place.put(&name, r#"{"node":"n2","until":1}"#);
    let said = place.error();
    assert!(
        said.contains(&name) && said.contains("another node's"),
        "{said}"
    );
}

/// The test sets the clock; when the old root is dropped, every certificate of it has expired.
#[test]
fn a_rotation_advances_by_itself_and_never_early() {
    let place = Place::new();
    let authority = place.open();
    join(&authority, "n1");
    join(&authority, "gone");
    let own = authority.issue_control(at(NOW)).unwrap();
    let advance = |authority: &Authority, generation: u64, now: u64| {
        let confirmed = |name: &NodeName| (name.as_str() == "n1").then_some(generation);
        authority.advance_rotation(confirmed, at(now)).unwrap()
    };
    assert_eq!(advance(&authority, 1, NOW), None, "nothing has begun");
    authority.begin_rotation(&NextRoot::Make, at(NOW)).unwrap();
    assert_eq!(advance(&authority, 1, NOW), None, "no node has confirmed");
    assert_eq!(advance(&authority, 2, NOW), None, "one is away");
    let status = authority.rotation_of_members(|_| None, at(NOW));
    assert_eq!(status.unconfirmed, [node("gone"), node("n1")]);
    let entry = DenyEntry {
        reason: "it is gone".to_owned(),
        expires: NOW + 10 * DAY,
    };
    authority
        .deny(Denied::Identity(node_id("gone")), entry, at(NOW))
        .unwrap();
    assert_eq!(advance(&authority, 2, NOW), Some(Stage::Switched));
    let switched = authority.issue_control(at(NOW)).unwrap();
    assert_ne!(switched.root, own.root);

    // The last leaf of the old root was issued at the switch. The control plane checks every hour whether to continue,
    // is restarted in between, and the node renews.
    let mut authority = authority;
    let mut now = NOW;
    let finished = loop {
        now += HOUR;
        drop(authority);
        authority = place.try_open(now).unwrap();
        authority
            .issue(&node_id("n1"), &request(), at(now))
            .unwrap();
        if advance(&authority, 2, now).is_some() {
            break now;
        }
        let trust = authority.trust().bundle;
        assert_eq!(trust.roots.len(), 2);
    };
    assert!(finished > own.issued.not_after);
    // Exactly as late as clocks may be behind.
    assert_eq!(finished, NOW + DAY + HOUR);
    let bundle = authority.trust().bundle;
    assert_eq!(bundle.roots, [authority.root()]);
    assert!(verifies(&switched.issued.chain, &bundle, NOW + DAY - 1));
    assert!(!verifies(&own.issued.chain, &bundle, NOW + DAY - 1));
}

#[test]
fn the_control_planes_leaf_has_the_key_that_it_comes_with() {
    let place = Place::new();
    let authority = place.open();
    let own = authority.issue_control(at(NOW)).unwrap();
    let chain = own.issued.chain.iter().map(|der| der.to_vec()).collect();
    let leaf = heddle_transport::Leaf::new(chain, &own.key).unwrap();
    assert_eq!(*leaf.id(), SpiffeId::control(domain()));
    assert_eq!(own.root, authority.root());
}

#[test]
fn a_request_travels_as_pem() {
    let place = Place::new();
    let der = request_site(&place.dir, &domain()).unwrap();
    let pem = site_request_pem(&der);
    let read = CertificateRequest::parse_pem(pem.as_bytes()).unwrap();
    assert_eq!(read, CertificateRequest::parse(&der).unwrap());
    for wrong in ["", "x", &pem.replace("REQUEST", "KEY"), &pem.repeat(2)] {
        let said = CertificateRequest::parse_pem(wrong.as_bytes());
        assert_eq!(said, Err(RequestFault::Malformed));
    }
}

/// After a restart the last address is found; an unchanged address is not written again.
#[test]
fn where_a_member_is_reached_survives_restarts_and_renewals() {
    use std::os::unix::fs::MetadataExt;
    let place = Place::new();
    let authority = place.open();
    join(&authority, "n1");
    let (old, new) = (
        "192.0.2.7:15008".parse().ok(),
        "[2001:db8::7]:15008".parse().ok(),
    );
    authority.note_address(&node("n1"), || old).unwrap();
    authority.note_address(&node("n1"), || new).unwrap();
    authority.note_address(&node("stranger"), || new).unwrap();
    let entry = std::fs::read_dir(place.dir.join("nodes")).unwrap().next();
    let path = entry.unwrap().unwrap().path();
    let file = || std::fs::metadata(&path).unwrap().ino();
    let written = file();
    authority.note_address(&node("n1"), || new).unwrap();
    assert_eq!(file(), written, "it is written again though it is the same");
    let later = NOW + HOUR;
    authority
        .issue(&node_id("n1"), &request(), at(later))
        .unwrap();
    drop(authority);

    let authority = place.try_open(later).unwrap();
    let expected = Member {
        node: node("n1"),
        until: later + DAY,
        address: new,
    };
    assert_eq!(
        authority.members(at(later)),
        std::slice::from_ref(&expected)
    );
    assert_eq!(authority.welcome(at(later)), [expected]);
    let entry = DenyEntry {
        reason: "it is gone".to_owned(),
        expires: NOW + 10 * DAY,
    };
    authority
        .deny(Denied::Identity(node_id("n1")), entry, at(later))
        .unwrap();
    assert_eq!(authority.welcome(at(later)), []);
    drop(authority);

    let text = std::fs::read_to_string(&path).unwrap();
    for address in ["0.0.0.0:15008", "192.0.2.7:0", "224.0.0.1:15008"] {
        std::fs::write(&path, text.replace("[2001:db8::7]:15008", address)).unwrap();
        let said = place.error();
        assert!(said.contains("not one that others could reach"), "{said}");
    }
}
