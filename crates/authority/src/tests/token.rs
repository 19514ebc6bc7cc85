use std::sync::Barrier;

use super::*;

fn join(authority: &Authority, token: &JoinToken, name: &str, now: u64) -> Result<Issued, String> {
    authority
        .join((&token.id, &token.secret), &node(name), &request(), at(now))
        .map_err(|error| error.reason().to_owned())
}

fn token_for(authority: &Authority, name: &str) -> JoinToken {
    authority
        .create_token(&node(name), DEFAULT_TOKEN_LIFE, at(NOW))
        .unwrap()
}

fn refused(reason: &str) -> Result<Issued, String> {
    Err(reason.to_owned())
}

#[test]
fn a_node_joins_once() {
    let place = Place::new();
    let authority = place.open();
    let token = token_for(&authority, "n1");
    let text = token.to_text();
    assert!(
        text.starts_with("heddle-") && text.split('.').count() == 3,
        "{}",
        text.len()
    );
    let read = JoinToken::parse(&text).unwrap();
    assert_eq!(read.root_sha256, authority.root_sha256());

    let issued = join(&authority, &read, "n1", NOW).unwrap();
    assert!(verifies(&issued.chain, &authority.trust().bundle, NOW));
    let (_, leaf) = x509_parser::parse_x509_certificate(&issued.chain[0]).unwrap();
    let names = leaf.subject_alternative_name().unwrap().unwrap().value;
    assert!(format!("{names:?}").contains("spiffe://cluster.local/heddle/node/n1"));
    assert_eq!(join(&authority, &read, "n1", NOW), refused("token_unknown"));
    drop(authority);
    // A used token stays used after a restart.
    assert_eq!(
        join(&place.open(), &read, "n1", NOW),
        refused("token_unknown")
    );
}

#[test]
fn a_token_is_of_one_node_and_expires_and_a_wrong_try_costs_nothing() {
    let place = Place::new();
    let authority = place.open();
    let token = token_for(&authority, "n1");
    let mut tampered = token.clone();
    let mut bytes = token.secret.as_bytes().to_vec();
    bytes[31] ^= 1;
    tampered.secret = TokenSecret::from_bytes(&bytes).unwrap();
    let mut renamed = token.clone();
    renamed.id = token_for(&authority, "n1").id;

    assert_eq!(
        join(&authority, &token, "n2", NOW),
        refused("token_other_node")
    );
    assert_eq!(
        join(&authority, &tampered, "n1", NOW),
        refused("token_secret")
    );
    assert_eq!(
        join(&authority, &renamed, "n1", NOW),
        refused("token_secret")
    );
    assert_eq!(
        join(&authority, &token, "n1", NOW + HOUR),
        refused("token_expired")
    );
    // The expired token is removed now, even if the clock goes back.
    assert_eq!(
        join(&authority, &token, "n1", NOW),
        refused("token_unknown")
    );

    let second = token_for(&authority, "n1");
    assert_eq!(
        join(&authority, &second, "n2", NOW),
        refused("token_other_node")
    );
    assert!(join(&authority, &second, "n1", NOW + HOUR - 1).is_ok());
}

#[test]
fn expired_tokens_are_forgotten_at_the_next_start() {
    let place = Place::new();
    drop(token_for(&place.open(), "n1"));
    let count = || std::fs::read_dir(place.dir.join("tokens")).unwrap().count();
    assert_eq!(count(), 1);
    assert!(place.try_open(NOW + HOUR).is_ok());
    assert_eq!(count(), 0);
}

#[test]
fn tokens_survive_a_restart_and_only_their_digests_are_stored() {
    let place = Place::new();
    let token = token_for(&place.open(), "n1");
    let stored = place.read(&format!("tokens/{}.json", token.id));
    assert!(!stored.contains(token.to_text().split('.').nth(1).unwrap()));
    assert!(!stored.contains(&hex::encode(token.secret.as_bytes())));
    assert!(join(&place.open(), &token, "n1", NOW).is_ok());
}

#[test]
fn of_two_that_use_one_token_at_once_one_wins() {
    let place = Place::new();
    let authority = place.open();
    for _ in 0..20 {
        let token = token_for(&authority, "n1");
        let barrier = Barrier::new(2);
        let attempt = || {
            barrier.wait();
            join(&authority, &token, "n1", NOW)
        };
        let (first, second) = std::thread::scope(|scope| {
            let other = scope.spawn(attempt);
            (attempt(), other.join().unwrap())
        });
        assert_ne!(first.is_ok(), second.is_ok(), "{first:?} {second:?}");
        let lost = if first.is_ok() { second } else { first };
        assert_eq!(lost, refused("token_unknown"));
    }
}

/// The file was removed by another program, or cannot be removed: no node joins.
#[test]
fn what_is_not_durable_is_refused() {
    let place = Place::new();
    let authority = place.open();
    let token = token_for(&authority, "n1");
    let file = place.dir.join(format!("tokens/{}.json", token.id));
    std::fs::remove_file(&file).unwrap();
    assert_eq!(
        join(&authority, &token, "n1", NOW),
        refused("token_unknown")
    );

    let token = token_for(&authority, "n1");
    let file = place.dir.join(format!("tokens/{}.json", token.id));
    std::fs::remove_file(&file).unwrap();
    std::fs::create_dir(&file).unwrap();
    assert_eq!(
        join(&authority, &token, "n1", NOW),
        refused("token_not_durable")
    );
    assert_eq!(
        join(&authority, &token, "n1", NOW),
        refused("token_unknown")
    );
}

#[test]
fn tokens_are_listed_and_revoked() {
    let place = Place::new();
    let authority = place.open();
    let (one, two) = (token_for(&authority, "n1"), token_for(&authority, "n2"));
    let nodes: Vec<_> = authority
        .tokens(at(NOW))
        .into_iter()
        .map(|info| (info.id, info.node))
        .collect();
    assert_eq!(nodes.len(), 2);
    assert!(nodes.contains(&(one.id.clone(), node("n1"))));
    assert!(authority.revoke_token(&one.id).unwrap());
    assert!(!authority.revoke_token(&one.id).unwrap());
    assert_eq!(join(&authority, &one, "n1", NOW), refused("token_unknown"));
    assert_eq!(authority.tokens(at(NOW)).len(), 1);
    assert!(authority.tokens(at(NOW + HOUR)).is_empty());
    assert!(join(&authority, &two, "n2", NOW).is_ok());
}

#[test]
fn tokens_are_bounded_and_expired_ones_make_room() {
    let place = Place::new();
    let authority = place.open();
    let token = token_for(&authority, "n1");
    authority.lock().tokens.fill_for_test(&token.id);
    let more = |now| authority.create_token(&node("n2"), DEFAULT_TOKEN_LIFE, at(now));
    assert!(matches!(more(NOW), Err(TokenError::Full)));
    assert!(more(NOW + HOUR).is_ok());
    assert_eq!(authority.tokens(at(NOW + HOUR)).len(), 1);
}

proptest::proptest! {
    #[test]
    fn any_text_is_a_token_or_none(text in "(heddle-)?[A-Za-z0-9._-]{0,200}|\\PC{0,100}") {
        if let Some(token) = JoinToken::parse(&text) {
            proptest::prop_assert_eq!(token.to_text().to_lowercase(), text.trim().to_lowercase());
        }
    }

    #[test]
    fn any_bytes_are_pem_or_none(
        text in "(-----(BEGIN|END) (CERT|A KEY|)-----\n|[A-Za-z0-9+/=]{0,70}\n|.{0,5}){0,12}"
    ) {
        if let Ok(sections) = pem::sections(text.as_bytes()) {
            for section in sections {
                let again = pem::encode(&section.label, &section.der);
                let again = pem::sections(again.as_bytes()).unwrap();
                proptest::prop_assert_eq!(&again[0].der, &section.der);
            }
        }
    }
}

#[test]
fn a_token_lives_for_a_week_at_most() {
    let place = Place::new();
    let authority = place.open();
    for (life, taken) in [(0, false), (1, true), (7 * DAY, true), (7 * DAY + 1, false)] {
        let made = authority.create_token(&node("n1"), Duration::from_secs(life), at(NOW));
        assert_eq!(made.is_ok(), taken, "{life}");
    }
}

#[test]
fn a_denied_node_does_not_join_and_keeps_its_token() {
    let place = Place::new();
    let authority = place.open();
    let token = token_for(&authority, "n1");
    let what = Denied::Identity(SpiffeId::node(domain(), node("n1")));
    let entry = DenyEntry {
        reason: "stolen".to_owned(),
        expires: NOW + 60,
    };
    authority.deny(what, entry, at(NOW)).unwrap();
    assert_eq!(join(&authority, &token, "n1", NOW), refused("denied"));
    assert!(join(&authority, &token, "n1", NOW + 60).is_ok());
}

#[test]
fn what_is_no_token_is_not_read() {
    let place = Place::new();
    let good = token_for(&place.open(), "n1").to_text();
    assert!(JoinToken::parse(&format!(" {}\n", *good)).is_some());
    for bad in [
        String::new(),
        good[1..].to_owned(),
        good[..good.len() - 1].to_owned(),
        format!("{}0", *good),
        good.replace('.', ":"),
        good.replacen("heddle-", "heddle-A", 1),
        good.replacen('.', ".A", 1),
        "heddle-../../x.AAAA.00".to_owned(),
        "heddle-".repeat(100),
    ] {
        assert!(JoinToken::parse(&bad).is_none(), "{bad}");
    }
}

/// A node would refuse the authority before it presents such a token, so it is not usable.
#[test]
fn a_token_that_names_a_root_that_was_replaced_is_not_listed() {
    let place = Place::new();
    let authority = place.open();
    let old = token_for(&authority, "n1");
    let listed = |authority: &Authority| -> Vec<TokenId> {
        let tokens = authority.tokens(at(NOW));
        tokens.into_iter().map(|token| token.id).collect()
    };
    authority.begin_rotation(&NextRoot::Make, at(NOW)).unwrap();
    assert_eq!(listed(&authority), std::slice::from_ref(&old.id));
    authority.switch_rotation(&[], false, at(NOW)).unwrap();
    assert_eq!(listed(&authority), []);
    let new = token_for(&authority, "n1");
    drop(authority);
    let authority = place.open();
    assert_eq!(listed(&authority), [new.id]);
    assert!(authority.revoke_token(&old.id).unwrap());

    // A file of a version that did not record the root is listed.
    let path = place.dir.join("tokens");
    let file = std::fs::read_dir(&path).unwrap().next().unwrap().unwrap();
    let text = std::fs::read_to_string(file.path()).unwrap();
    let mut record: serde_json::Value = serde_json::from_str(&text).unwrap();
    record
        .as_object_mut()
        .unwrap()
        .remove("root_sha256")
        .unwrap();
    drop(authority);
    std::fs::write(file.path(), record.to_string()).unwrap();
    assert_eq!(listed(&place.open()).len(), 1);
}
