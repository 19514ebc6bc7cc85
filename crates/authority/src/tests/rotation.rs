use super::*;

const NO_NODES: &[NodeName] = &[];

fn refusal<T>(done: Result<T, RotationRefusal>) -> String {
    match done {
        Ok(_) => "done".to_owned(),
        Err(refusal) => refusal.to_string(),
    }
}

fn stage(authority: &Authority) -> Stage {
    authority.rotation([], |_| None).stage
}

#[test]
fn a_rotation_goes_through_its_stages_and_no_leaf_is_refused_on_the_way() {
    let place = Place::new();
    let mut authority = place.open();
    let id = workload("shop", "cart");
    let old_root = authority.root();
    let mut leaves = vec![authority.issue(&id, &request(), at(NOW)).unwrap()];
    let mut now = NOW;
    for (step, generation, roots) in [("begin", 2, 2), ("switch", 2, 2), ("finish", 3, 1)] {
        match step {
            "begin" => authority.begin_rotation(&NextRoot::Make, at(now)).unwrap(),
            "switch" => authority.switch_rotation(NO_NODES, false, at(now)).unwrap(),
            _ => {
                let early = authority.finish_rotation(NO_NODES, false, at(now + DAY - 1));
                assert!(matches!(early, Err(RotationRefusal::StillInUse(_))));
                now += DAY;
                authority.finish_rotation(NO_NODES, false, at(now)).unwrap();
            }
        }
        // Each stage survives a restart.
        drop(authority);
        authority = place.try_open(now).unwrap();
        let bundle = authority.trust().bundle;
        assert_eq!(
            (bundle.generation, bundle.roots.len()),
            (generation, roots),
            "{step}"
        );
        leaves.push(authority.issue(&id, &request(), at(now)).unwrap());
        for leaf in leaves.iter().filter(|leaf| now < leaf.not_after) {
            assert!(verifies(&leaf.chain, &bundle, now), "{step}");
        }
    }
    assert_ne!(authority.root(), old_root);
    assert_eq!(stage(&authority), Stage::Steady);
    for file in ["root.key", "root.pem"] {
        assert!(!place.dir.join(file).exists(), "{file}");
    }
    // A second rotation takes the next number.
    authority.begin_rotation(&NextRoot::Make, at(now)).unwrap();
    assert!(place.dir.join("root-3.key").exists());
}

#[test]
fn steps_out_of_turn_are_refused_and_say_what_is_next() {
    type Step = fn(&Authority) -> Result<(), RotationRefusal>;
    let begin: Step = |a| a.begin_rotation(&NextRoot::Make, at(NOW));
    let switch: Step = |a| a.switch_rotation(NO_NODES, false, at(NOW));
    let finish: Step = |a| a.finish_rotation(NO_NODES, true, at(NOW));
    let cancel: Step = |a| a.cancel_rotation();
    let turns: [(Step, &[Step], &str); 3] = [
        (begin, &[switch, finish, cancel], "the next step is begin"),
        (
            switch,
            &[begin, finish],
            "the next step is switch, or cancel",
        ),
        (finish, &[begin, switch, cancel], "the next step is finish"),
    ];
    let place = Place::new();
    let authority = place.open();
    for (right, wrong, wanted) in turns {
        let before = (authority.trust(), place.read("state.json"));
        for step in wrong {
            let said = refusal(step(&authority));
            assert!(said.contains(wanted), "{said}");
        }
        assert_eq!((authority.trust(), place.read("state.json")), before);
        right(&authority).unwrap();
    }
}

#[test]
fn nodes_that_have_not_confirmed_hold_it_up_unless_forced() {
    let place = Place::new();
    let authority = place.open();
    authority.begin_rotation(&NextRoot::Make, at(NOW)).unwrap();
    let nodes: Vec<NodeName> = (0..12).map(|number| node(&format!("n{number}"))).collect();
    let confirmed = |node: &NodeName| match node.as_str() {
        "n0" => Some(2),
        "n1" => Some(1),
        _ => None,
    };
    let status = authority.rotation(&nodes, confirmed);
    assert_eq!((status.stage, status.generation), (Stage::Begun, 2));
    assert_eq!(status.unconfirmed, nodes[1..]);

    let said = refusal(authority.switch_rotation(&status.unconfirmed, false, at(NOW)));
    assert!(
        said.starts_with("11 of the nodes have not confirmed the roots: n1, n2"),
        "{said}"
    );
    assert!(said.contains("n10 and 1 more"), "{said}");
    authority
        .switch_rotation(&status.unconfirmed, true, at(NOW))
        .unwrap();
    let status = authority.rotation(&nodes, |_| Some(2));
    assert!(status.unconfirmed.is_empty());
    assert_eq!(status.old_until, Some(NOW + DAY));
    let said = refusal(authority.finish_rotation(&nodes, false, at(NOW + DAY)));
    assert!(said.contains("12 of the nodes"), "{said}");
    authority.finish_rotation(NO_NODES, true, at(NOW)).unwrap();
}

#[test]
fn a_rotation_that_was_begun_can_be_given_up() {
    let place = Place::new();
    let authority = place.open();
    let root = authority.root();
    authority.begin_rotation(&NextRoot::Make, at(NOW)).unwrap();
    authority.cancel_rotation().unwrap();
    let bundle = authority.trust().bundle;
    assert_eq!((bundle.generation, &bundle.roots), (3, &vec![root]));
    assert!(!place.dir.join("root-2.key").exists());
    drop(authority);
    assert_eq!(stage(&place.open()), Stage::Steady);
}

#[test]
fn the_next_root_may_be_supplied() {
    let (place, maker) = (Place::new(), Place::new());
    let (authority, made) = (place.open(), maker.open());
    let (pem, key) = (maker.read("root.pem"), maker.read("root.key"));
    let wrong_key = NextRoot::Supply {
        certificate: pem.as_bytes(),
        key: place.read("root.key").into_bytes().leak(),
    };
    let same = (place.read("root.pem"), place.read("root.key"));
    let same = NextRoot::Supply {
        certificate: same.0.as_bytes(),
        key: same.1.as_bytes(),
    };
    for (next, wanted) in [
        (wrong_key, "the private key is another certificate's"),
        (same, "it is the root that is trusted already"),
    ] {
        let said = refusal(authority.begin_rotation(&next, at(NOW)));
        assert!(said.contains(wanted), "{said}");
    }
    let next = NextRoot::Supply {
        certificate: pem.as_bytes(),
        key: key.as_bytes(),
    };
    authority.begin_rotation(&next, at(NOW)).unwrap();
    authority.switch_rotation(NO_NODES, false, at(NOW)).unwrap();
    assert_eq!(authority.root(), made.root());
}

/// A longer leaf life was set once: leaves issued under it are waited for.
#[test]
fn leaves_of_an_earlier_setting_are_waited_for() {
    let place = Place::new();
    let long = AuthoritySettings {
        leaf_life: Duration::from_secs(60 * DAY),
        ..AuthoritySettings::default()
    };
    drop(Authority::open(&place.dir, &domain(), long, at(NOW)).unwrap());
    let authority = place.open();
    authority.begin_rotation(&NextRoot::Make, at(NOW)).unwrap();
    authority.switch_rotation(NO_NODES, false, at(NOW)).unwrap();
    let status = authority.rotation([], |_| None);
    assert_eq!(status.old_until, Some(NOW + 60 * DAY));
}

/// A crash right before the state is written leaves files that the state does not name.
#[test]
fn a_rotation_that_did_not_begin_does_no_harm() {
    let place = Place::new();
    let root = place.open().root();
    place.put("root-2.key", "half");
    let authority = place.open();
    assert_eq!(authority.root(), root);
    authority.begin_rotation(&NextRoot::Make, at(NOW)).unwrap();
    authority.switch_rotation(NO_NODES, false, at(NOW)).unwrap();
}

/// The state file never names a root whose files are missing.
#[test]
fn a_root_is_named_after_its_key_and_its_certificate_are_written() {
    for file in ["root-2.key", "root-2.pem"] {
        let place = Place::new();
        let authority = place.open();
        let before = place.read("state.json");
        let in_the_way = place.dir.join(file);
        std::fs::create_dir(&in_the_way).unwrap();
        let said = refusal(authority.begin_rotation(&NextRoot::Make, at(NOW)));
        assert!(said.contains(file), "{said}");
        assert_eq!(place.read("state.json"), before, "{file}");
        assert_eq!(stage(&authority), Stage::Steady);
        drop(authority);
        std::fs::remove_dir(&in_the_way).unwrap();
        assert_eq!(stage(&place.open()), Stage::Steady);
    }
}
