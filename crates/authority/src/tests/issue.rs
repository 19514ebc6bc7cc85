use heddle_model::Subject;
use x509_parser::extensions::{GeneralName, ParsedExtension};
use x509_parser::prelude::{FromDer as _, X509Certificate};

use super::*;

#[test]
fn a_leaf_is_an_x509_svid() {
    let place = Place::new();
    let authority = place.open();
    let id = workload("shop", "cart");
    let node = NodeName::parse("edge-1").unwrap();
    let ed25519 = || KeyPair::generate_for(&rcgen::PKCS_ED25519);
    for (key, holder) in [
        (KeyPair::generate(), None),
        (ed25519(), None),
        (KeyPair::generate(), Some(&node)),
        (ed25519(), Some(&node)),
    ] {
        let wanted = request_of(&key.unwrap());
        let issued = match holder {
            None => authority.issue(&id, &wanted, at(NOW)),
            Some(node) => authority.issue_to(node, &id, &wanted, at(NOW)),
        };
        let issued = issued.unwrap();
        assert_eq!(issued.chain.len(), 1);
        assert!(!issued.shortened);
        assert_eq!(issued.not_after, NOW + DAY);
        assert!(verifies(&issued.chain, &authority.trust().bundle, NOW));

        let (rest, leaf) = X509Certificate::from_der(&issued.chain[0]).unwrap();
        assert!(rest.is_empty());
        assert_eq!(
            leaf.public_key().subject_public_key.data.as_ref(),
            wanted.public_key()
        );
        assert_eq!(leaf.validity().not_before.timestamp(), (NOW - HOUR) as i64);
        assert_eq!(leaf.validity().not_after.timestamp(), (NOW + DAY) as i64);
        let subject = holder.map_or("", |_| "OU=heddle node, uid=edge-1");
        assert_eq!(leaf.subject().to_string(), subject);
        let serial = Serial::from_be_bytes(leaf.raw_serial()).unwrap();
        assert_eq!(serial, issued.serial);
        assert!(leaf.raw_serial()[0] < 0x80, "a serial number is positive");
        let mut seen = Vec::new();
        for extension in leaf.extensions() {
            match extension.parsed_extension() {
                ParsedExtension::SubjectAlternativeName(names) => {
                    let uri = id.to_string();
                    assert_eq!(names.general_names, [GeneralName::URI(&uri)]);
                    assert_eq!(
                        extension.critical,
                        holder.is_none(),
                        "unless there is a subject"
                    );
                    seen.push("names");
                }
                ParsedExtension::KeyUsage(usage) => {
                    assert_eq!(usage.flags, 1, "digitalSignature alone");
                    assert!(extension.critical);
                    seen.push("usage");
                }
                ParsedExtension::ExtendedKeyUsage(usage) => {
                    assert!(usage.server_auth && usage.client_auth);
                    assert!(!usage.any && !usage.code_signing && usage.other.is_empty());
                    seen.push("extended");
                }
                ParsedExtension::BasicConstraints(basic) => {
                    assert!(!basic.ca && extension.critical);
                    seen.push("basic");
                }
                ParsedExtension::AuthorityKeyIdentifier(_)
                | ParsedExtension::SubjectKeyIdentifier(_) => {}
                other => panic!("{other:?}"),
            }
        }
        seen.sort_unstable();
        assert_eq!(seen, ["basic", "extended", "names", "usage"]);
    }
}

#[test]
fn a_root_says_what_it_may_sign_and_for_which_domain() {
    let place = Place::new();
    let root = place.open().root();
    let (_, root) = X509Certificate::from_der(&root).unwrap();
    let basic = root.basic_constraints().unwrap().unwrap();
    assert!(basic.critical && basic.value.ca);
    assert_eq!(basic.value.path_len_constraint, Some(1));
    let usage = root.key_usage().unwrap().unwrap().value;
    assert!(usage.key_cert_sign() && usage.crl_sign() && !usage.digital_signature());
    let names = root.subject_alternative_name().unwrap().unwrap().value;
    assert_eq!(
        names.general_names,
        [GeneralName::URI("spiffe://cluster.local")]
    );
    let life = root.validity().not_after.timestamp() - root.validity().not_before.timestamp();
    assert_eq!(life, (3_652 * DAY + HOUR) as i64);
}

#[test]
fn nothing_outlives_its_issuer() {
    let place = Place::new();
    let settings = AuthoritySettings {
        root_life: Duration::from_secs(30 * DAY),
        leaf_life: Duration::from_secs(90 * DAY),
        ..AuthoritySettings::default()
    };
    let authority = Authority::open(&place.dir, &domain(), settings, at(NOW)).unwrap();
    let id = workload("shop", "cart");
    let issued = authority.issue(&id, &request(), at(NOW)).unwrap();
    assert!(issued.shortened);
    assert_eq!(issued.not_after, NOW + 30 * DAY);
    let (_, leaf) = X509Certificate::from_der(&issued.chain[0]).unwrap();
    // The leaf's validity does not begin before its issuer's either.
    assert_eq!(leaf.validity().not_before.timestamp(), (NOW - HOUR) as i64);

    for (time, wanted) in [
        (NOW + 30 * DAY, "expired at 2026-"),
        (NOW - 2 * HOUR, "check the clock"),
    ] {
        let error = authority.issue(&id, &request(), at(time)).unwrap_err();
        assert!(matches!(error, IssueError::Issuer(_)), "{error}");
        assert!(error.to_string().contains(wanted), "{error}");
    }
}

#[test]
fn a_leaf_is_taken_only_while_it_is_valid_and_only_with_its_own_root() {
    let (place, other) = (Place::new(), Place::new());
    let authority = place.open();
    let id = workload("shop", "cart");
    let issued = authority.issue(&id, &request(), at(NOW)).unwrap();
    let bundle = authority.trust().bundle;
    for (time, taken) in [
        (NOW - 2 * HOUR, false),
        (NOW - HOUR, true),
        (NOW + DAY, true),
        (NOW + DAY + 1, false),
    ] {
        assert_eq!(verifies(&issued.chain, &bundle, time), taken, "{time}");
    }
    assert!(!verifies(&issued.chain, &other.open().trust().bundle, NOW));
}

#[test]
fn another_trust_domain_gets_nothing() {
    let place = Place::new();
    let other = TrustDomain::parse("elsewhere").unwrap();
    let id = SpiffeId::node(other, node("n1"));
    let error = place.open().issue(&id, &request(), at(NOW)).unwrap_err();
    assert!(matches!(error, IssueError::TrustDomain));
}

#[test]
fn settings_have_bounds() {
    for (settings, wanted) in [
        (
            AuthoritySettings {
                leaf_life: Duration::from_secs(299),
                ..AuthoritySettings::default()
            },
            "the life of leaves must be between 5 minutes and 90 days",
        ),
        (
            AuthoritySettings {
                backdate: Duration::from_secs(DAY + 1),
                ..AuthoritySettings::default()
            },
            "the backdating of leaves must be between 0 and 1 day",
        ),
        (
            AuthoritySettings {
                root_life: Duration::from_secs(DAY),
                ..AuthoritySettings::default()
            },
            "the life of a root must be between 30 days and 30 years",
        ),
    ] {
        let place = Place::new();
        let error = Authority::open(&place.dir, &domain(), settings, at(NOW)).unwrap_err();
        assert_eq!(error.to_string(), wanted);
        assert!(!place.dir.exists());
    }
}

/// Pairs of asker and requested identity, with the expected decision.
#[test]
fn a_node_is_issued_itself_and_what_is_placed_on_it() {
    let elsewhere = TrustDomain::parse("elsewhere").unwrap();
    let n1 = SpiffeId::node(domain(), node("n1"));
    let n2 = SpiffeId::node(domain(), node("n2"));
    let (cart, web) = (workload("shop", "cart"), workload("shop", "web"));
    let placed = |on: &NodeName, account: &ServiceAccountName| {
        on.as_str() == "n1" && account.to_string() == "shop/cart"
    };
    let foreign = |id: &SpiffeId| SpiffeId {
        trust_domain: elsewhere.clone(),
        subject: id.subject.clone(),
    };
    let control = SpiffeId::control(domain());
    let cases = [
        (Some(&n1), &n1, Ok(())),
        (Some(&n1), &cart, Ok(())),
        (Some(&n1), &n2, Err(IssuanceRefusal::OtherNode)),
        (Some(&n1), &web, Err(IssuanceRefusal::NotPlaced)),
        (Some(&n2), &cart, Err(IssuanceRefusal::NotPlaced)),
        (Some(&n1), &control, Err(IssuanceRefusal::Control)),
        (Some(&cart), &cart, Err(IssuanceRefusal::NoNode)),
        (Some(&control), &cart, Err(IssuanceRefusal::NoNode)),
        (None, &n1, Err(IssuanceRefusal::Unidentified)),
        (
            Some(&n1),
            &foreign(&cart),
            Err(IssuanceRefusal::TrustDomain),
        ),
        (Some(&foreign(&n1)), &n1, Err(IssuanceRefusal::TrustDomain)),
    ];
    for (asker, wanted, verdict) in cases {
        let asker = asker.map(|id| Asker {
            id: id.clone(),
            serial: None,
        });
        let denied = DenyList::default();
        let found = may_issue(asker.as_ref(), wanted, &domain(), &denied, at(NOW), placed);
        assert_eq!(found, verdict, "{asker:?} asks for {wanted}");
    }
    assert!(matches!(control.subject, Subject::Control));
}
