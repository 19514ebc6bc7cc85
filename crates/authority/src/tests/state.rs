use super::*;

#[test]
fn the_state_survives_and_stays_private() {
    let place = Place::new();
    let first = place.open();
    assert_eq!(first.origin(), Origin::Made);
    let (root, id) = (first.root(), workload("shop", "cart"));
    let leaf = first.issue(&id, &request(), at(NOW)).unwrap();
    drop(first);

    let again = place.open();
    assert_eq!(again.origin(), Origin::Kept);
    assert_eq!(again.root(), root);
    assert_eq!(again.trust().bundle.generation, 1);
    assert!(verifies(&leaf.chain, &again.trust().bundle, NOW));

    let mode = |path: &Path| std::fs::metadata(path).unwrap().permissions().mode() & 0o7777;
    assert_eq!(mode(&place.dir), 0o700);
    assert_eq!(mode(&place.dir.join("tokens")), 0o700);
    for file in ["root.key", "root.pem", "state.json", "lock"] {
        assert_eq!(mode(&place.dir.join(file)), 0o600, "{file}");
    }
}

#[test]
fn what_others_can_get_at_is_refused() {
    for (file, mode, wanted) in [
        (
            "",
            0o750,
            "its mode is 0750 (check who has read it, then chmod 0700 it)",
        ),
        (
            "root.key",
            0o640,
            "its mode is 0640 (check who has read it, then chmod 0600 it)",
        ),
        (
            "root.pem",
            0o664,
            "its mode is 0664 (check who has read it, then chmod 0644 it)",
        ),
        ("state.json", 0o604, "its mode is 0604"),
        ("tokens", 0o701, "its mode is 0701"),
    ] {
        let place = Place::new();
        drop(place.open());
        chmod(&place.dir.join(file), mode);
        let error = place.error();
        assert!(error.contains(wanted), "{file}: {error}");
    }
}

#[test]
fn a_certificate_may_be_read_by_others() {
    let place = Place::new();
    drop(place.open());
    chmod(&place.dir.join("root.pem"), 0o644);
    assert!(place.try_open(NOW).is_ok());
}

#[test]
fn one_process_at_a_time_works_with_a_folder() {
    let place = Place::new();
    let first = place.open();
    match place.try_open(NOW).unwrap_err() {
        AuthorityError::Folder(error) => assert!(error.is_busy(), "{error}"),
        other => panic!("{other}"),
    }
    drop(first);
    assert!(place.try_open(NOW).is_ok());
}

#[test]
fn a_link_is_no_key() {
    let (place, other) = (Place::new(), Place::new());
    drop(place.open());
    drop(other.open());
    std::fs::remove_file(place.dir.join("root.key")).unwrap();
    let target = other.dir.join("root.key");
    std::os::unix::fs::symlink(target, place.dir.join("root.key")).unwrap();
    assert!(
        place.error().contains("it is no plain file"),
        "{}",
        place.error()
    );
}

/// A new root beside foreign files would be one that no node trusts.
#[test]
fn a_root_is_made_only_in_an_empty_folder() {
    for (file, wanted) in [
        (
            "node.leaf",
            "node.leaf: a node keeps its state in this folder",
        ),
        ("trust.json", "a node keeps its state in this folder"),
        ("notes.txt", "notes.txt: it is no file of an authority"),
        ("floor", "floor: it is no file of an authority"),
        (
            "root.pem.old",
            "root.pem.old: it is no file of an authority",
        ),
        ("tokens", "state.json: it is gone"),
        ("nodes", "state.json: it is gone"),
    ] {
        let place = Place::with(&[(file, "")]);
        let error = place.error();
        assert!(error.contains(wanted), "{file}: {error}");
        assert!(!place.dir.join("root.key").exists(), "{file}");
    }
    // The same holds for a supplied root.
    let supplied = Place::new();
    drop(supplied.open());
    remove(&supplied, "state.json");
    remove(&supplied, "deny.json");
    supplied.put("node.leaf", "");
    let error = supplied.error();
    assert!(error.contains("a node keeps its state"), "{error}");

    let empty = Place::with(&[("lock", ""), (".keep", "")]);
    std::fs::create_dir(empty.dir.join("lost+found")).unwrap();
    assert_eq!(empty.open().origin(), Origin::Made);
}

#[test]
fn half_written_files_are_swept_away() {
    let place = Place::new();
    let root = place.open().root();
    place.put(".state.json.0123456789abcdef.tmp", "{\"version\"");
    place.put(".root.key.0123456789abcdef.tmp", "-----BEGIN");
    place.put("tokens/.x.json.0123456789abcdef.tmp", "{");
    assert_eq!(place.open().root(), root);
    let count = |dir: &str| {
        let entries = std::fs::read_dir(place.dir.join(dir)).unwrap();
        let names = entries.map(|e| e.unwrap().file_name().into_string().unwrap());
        names.filter(|name| name.ends_with(".tmp")).count()
    };
    assert_eq!(count("") + count("tokens"), 0);
}

/// Damaged and missing files: the error names the file, and no other root is made.
#[test]
fn damage_is_an_error_and_never_a_new_root() {
    type Damage<'a> = &'a dyn Fn(&Place);
    let cases: &[(&str, Damage<'_>, &str)] = &[
        (
            "empty state",
            &|p| p.put("state.json", ""),
            "state.json: it is damaged",
        ),
        (
            "cut state",
            &|p| p.put("state.json", "{\"version\":1"),
            "state.json: it is damaged",
        ),
        (
            "newer state",
            &|p| edit(p, "\"version\": 1", "\"version\": 2"),
            "another version of heddle",
        ),
        (
            "stage",
            &|p| edit(p, "steady", "begun"),
            "too many or too few roots",
        ),
        (
            "name",
            &|p| edit(p, "\"root\"", "\"../root\""),
            "out of range",
        ),
        (
            "no key",
            &|p| remove(p, "root.key"),
            "root.key: it is not there",
        ),
        (
            "no root",
            &|p| remove(p, "root.pem"),
            "root.pem: it is not there",
        ),
        (
            "empty root",
            &|p| p.put("root.pem", ""),
            "root.pem: it holds no certificate",
        ),
        (
            "cut root",
            &|p| p.put("root.pem", &p.read("root.pem")[..200]),
            "a section has no END line",
        ),
        (
            "empty key",
            &|p| p.put("root.key", ""),
            "root.key: it must hold one private key",
        ),
        (
            "no state, a key",
            &|p| {
                remove(p, "state.json");
                remove(p, "deny.json");
                remove(p, "root.pem");
            },
            "root.pem: it is not there",
        ),
        (
            "no state, a deny-list",
            &|p| remove(p, "state.json"),
            "state.json: it is gone",
        ),
        (
            "no state, a second root",
            &|p| {
                remove(p, "state.json");
                p.put("root-2.pem", &p.read("root.pem"));
            },
            "state.json: it is gone",
        ),
        (
            "no deny-list",
            &|p| remove(p, "deny.json"),
            "deny.json: it is not there, and the peers that it refused would be let in",
        ),
        (
            "deny-list",
            &|p| p.put("deny.json", "[]"),
            "deny.json: it is damaged",
        ),
        (
            "token",
            &|p| p.put("tokens/AAAAAAAAAAAA.json", "{}"),
            "AAAAAAAAAAAA.json: it is damaged",
        ),
        (
            "no token",
            &|p| p.put("tokens/readme", "{}"),
            "it is no token's file",
        ),
        (
            "large",
            &|p| p.put("state.json", &" ".repeat(70_000)),
            "state.json: it is larger than 65536 bytes",
        ),
    ];
    for (name, damage, wanted) in cases {
        let place = Place::new();
        drop(place.open());
        damage(&place);
        let before = files(&place);
        let error = place.error();
        assert!(error.contains(wanted), "{name}: {error}");
        assert_eq!(files(&place), before, "{name}");
    }
}

/// Folders of earlier versions have a list only when something was denied, and their state does not record it.
#[test]
fn a_folder_of_before_is_asked_once_whether_it_has_a_deny_list() {
    for list in [
        None,
        Some("{\"version\":1,\"generation\":7,\"entries\":[]}"),
    ] {
        let place = Place::new();
        drop(place.open());
        edit(&place, ",\n  \"has_deny_list\": true", "");
        match list {
            Some(list) => place.put("deny.json", list),
            None => remove(&place, "deny.json"),
        }
        let generation = list.map_or(0, |_| 7);
        assert_eq!(place.open().trust().denied.generation, generation);
        assert_eq!(place.open().trust().denied.generation, generation);
        remove(&place, "deny.json");
        let error = place.error();
        assert!(error.contains("deny.json: it is not there"), "{error}");
        // The repair that the error suggests works.
        place.put(
            "deny.json",
            "{\"version\":1,\"generation\":0,\"entries\":[]}",
        );
        assert_eq!(place.open().trust().denied.entries().len(), 0);
    }
}

fn edit(place: &Place, from: &str, to: &str) {
    let text = place.read("state.json");
    assert!(text.contains(from));
    place.put("state.json", &text.replace(from, to));
}

fn remove(place: &Place, name: &str) {
    std::fs::remove_file(place.dir.join(name)).unwrap();
}

fn files(place: &Place) -> Vec<String> {
    let entries = std::fs::read_dir(&place.dir).unwrap();
    let mut names: Vec<_> = entries
        .map(|entry| entry.unwrap().file_name().into_string().unwrap())
        .collect();
    names.sort();
    names
}

#[test]
fn a_supplied_root_is_checked_and_kept() {
    let maker = Place::new();
    let made = maker.open();
    let (pem, key) = (maker.read("root.pem"), maker.read("root.key"));
    let place = Place::with(&[("root.pem", &pem), ("root.key", &key)]);
    let authority = place.open();
    assert_eq!(authority.origin(), Origin::Supplied);
    assert_eq!(authority.root(), made.root());
    drop(authority);
    assert_eq!(place.open().origin(), Origin::Kept);

    let other = Place::new();
    drop(other.open());
    let wrong = Place::with(&[("root.pem", &pem), ("root.key", &other.read("root.key"))]);
    assert!(
        wrong
            .error()
            .contains("the private key is another certificate's")
    );
    // Once the state names the root, another in its place is refused.
    place.put("root.pem", &other.read("root.pem"));
    place.put("root.key", &other.read("root.key"));
    assert!(place.error().contains("it is another root than before"));

    for (now, wanted) in [
        (NOW + 4_000 * DAY, "the certificate expired at"),
        (NOW - DAY, "the certificate is valid from"),
    ] {
        let place = Place::with(&[("root.pem", &pem), ("root.key", &key)]);
        let error = place.try_open(now).unwrap_err().to_string();
        assert!(error.contains(wanted), "{error}");
    }
}

#[test]
fn a_supplied_root_must_be_an_authority_of_this_trust_domain() {
    let key = KeyPair::generate_for(&rcgen::PKCS_ECDSA_P384_SHA384).unwrap();
    let pem_of = |change: &dyn Fn(&mut CertificateParams)| {
        let mut params = CertificateParams::default();
        params.is_ca = rcgen::IsCa::Ca(rcgen::BasicConstraints::Unconstrained);
        change(&mut params);
        let made = params.self_signed(&key).unwrap();
        String::clone(&pem::encode("CERTIFICATE", made.der()))
    };
    let key_pem = String::clone(&pem::encode("PRIVATE KEY", key.serialized_der()));
    let uri = |text: &str| rcgen::SanType::URI(text.try_into().unwrap());
    let constrained = |params: &mut CertificateParams| {
        params.extended_key_usages = vec![rcgen::ExtendedKeyUsagePurpose::CodeSigning];
    };
    type Change<'a> = &'a dyn Fn(&mut CertificateParams);
    let cases: &[(Change<'_>, &str)] = &[
        (&|_| {}, ""),
        (
            &|p| p.subject_alt_names = vec![uri("spiffe://cluster.local")],
            "",
        ),
        // The verifying node decides what a trust anchor may be used for.
        (&constrained, ""),
        (&|p| p.is_ca = rcgen::IsCa::NoCa, "it lacks CA:TRUE"),
        (
            &|p| p.key_usages = vec![rcgen::KeyUsagePurpose::DigitalSignature],
            "it lacks CA:TRUE or keyCertSign",
        ),
        (
            &|p| p.subject_alt_names = vec![uri("spiffe://elsewhere")],
            "of another trust domain, \"spiffe://elsewhere\"",
        ),
    ];
    for (change, wanted) in cases {
        let place = Place::with(&[("root.pem", &pem_of(change)), ("root.key", &key_pem)]);
        match (place.try_open(NOW), *wanted) {
            (Ok(authority), "") => {
                let id = workload("shop", "cart");
                let issued = authority.issue(&id, &request(), at(NOW)).unwrap();
                assert!(verifies(&issued.chain, &authority.trust().bundle, NOW));
            }
            (Err(error), wanted) if !wanted.is_empty() => {
                assert!(error.to_string().contains(wanted), "{error}");
            }
            (other, wanted) => panic!("{other:?} instead of {wanted}"),
        }
    }
}

#[test]
fn an_authority_keeps_its_trust_domain() {
    let place = Place::new();
    drop(place.open());
    let other = TrustDomain::parse("elsewhere").unwrap();
    let opened = Authority::open(&place.dir, &other, AuthoritySettings::default(), at(NOW));
    let error = opened.unwrap_err().to_string();
    assert!(
        error.contains("it is of the trust domain cluster.local"),
        "{error}"
    );
}

/// Formats everything that implements `Debug` or `Display`, and looks for keys and secrets in it.
#[test]
fn nothing_shows_a_key() {
    let place = Place::new();
    let authority = place.open();
    let token = authority
        .create_token(&node("n1"), DEFAULT_TOKEN_LIFE, at(NOW))
        .unwrap();
    let issued = authority.issue(&workload("a", "b"), &request(), at(NOW));
    authority.begin_rotation(&NextRoot::Make, at(NOW)).unwrap();
    let shown = format!(
        "{authority:?} {authority:#?} {token:?} {:?} {issued:?} {:?}",
        token.secret,
        authority.tokens(at(NOW))
    );
    let mut secrets = vec![token.secret.as_bytes().to_vec()];
    for file in ["root.key", "root-2.key"] {
        let pem = place.read(file);
        let section = pem::sections(pem.as_bytes()).unwrap().pop().unwrap();
        // PKCS #8 contains the 32 bytes of the scalar.
        let start = section
            .der
            .windows(2)
            .position(|w| w == [0x04, 0x20])
            .unwrap();
        secrets.push(section.der[start + 2..start + 34].to_vec());
        for line in pem.lines().filter(|line| !line.starts_with("---")) {
            assert!(!shown.contains(line), "{file} in base64");
        }
    }
    assert!(!shown.contains(token.to_text().split('.').nth(1).unwrap()));
    for secret in secrets {
        let list = format!("{secret:?}");
        let numbers = list.trim_matches(['[', ']']);
        assert!(!shown.contains(&hex::encode(&secret)), "in hexadecimal");
        // Eight bytes in a row, as a derived Debug would write them on one or on several lines.
        let part: Vec<&str> = numbers.split(", ").take(8).collect();
        assert!(!shown.contains(&part.join(", ")), "as a list");
        let squeezed: String = shown.split_whitespace().collect();
        assert!(!squeezed.contains(&part.join(",")), "as a list");
    }
}

#[test]
fn keys_are_in_their_files_and_nowhere_else() {
    let place = Place::new();
    let authority = place.open();
    let denied = Denied::Identity(workload("a", "b"));
    let entry = DenyEntry {
        reason: "test".to_owned(),
        expires: NOW + DAY,
    };
    authority.deny(denied, entry, at(NOW)).unwrap();
    let key = place.read("root.key");
    let line = key.lines().nth(1).unwrap();
    let mut pending = vec![place.dir];
    while let Some(dir) = pending.pop() {
        for entry in std::fs::read_dir(dir).unwrap() {
            let path = entry.unwrap().path();
            if path.is_dir() {
                pending.push(path);
            } else if !path.ends_with("root.key") {
                let text = std::fs::read_to_string(&path).unwrap();
                assert!(!text.contains(line), "{}", path.display());
            }
        }
    }
}
