use heddle_authority::{AuthoritySettings, CertificateRequest, NextRoot, request_site};

use super::*;
use crate::control::fixture::{Fixture, HOUR, NOW, at, node_id};

fn keeper(fixture: &Fixture) -> AuthorityKeeper {
    AuthorityKeeper::new(
        Arc::clone(&fixture.authority),
        fixture.nodes.clone(),
        fixture.door(),
        Arc::clone(&fixture.clock),
    )
}

fn stage(fixture: &Fixture) -> Stage {
    fixture.authority.rotation([], |_| None).stage
}

/// After one command, the keeper's periodic checks finish the rotation as time passes.
#[test]
fn a_rotation_that_has_begun_comes_to_its_end_and_not_before_all_has_expired() {
    let fixture = Fixture::new();
    let mut keeper = keeper(&fixture);
    let old = fixture.leaf(&node_id("n1"));
    let authority = &fixture.authority;
    let begun = authority.begin_rotation(&NextRoot::Make, at(NOW));
    begun.expect("begun");
    keeper.look();
    // The node has a certificate, but has not confirmed.
    assert_eq!(stage(&fixture), Stage::Begun);
    let mut now = NOW;
    let mut seen = vec![Stage::Begun];
    while seen.last() != Some(&Stage::Steady) {
        now += HOUR;
        fixture.set_time(now);
        keeper.look();
        let is_alive = now <= old.not_after();
        let is_trusted = authority.trust().bundle.roots.len() == 2;
        assert!(is_trusted || !is_alive, "the old root is gone at {now}");
        if seen.last() != Some(&stage(&fixture)) {
            seen.push(stage(&fixture));
        }
        assert!(now < NOW + 100 * HOUR, "{seen:?}");
    }
    // The rotation waited for the node's certificate to expire, then for those that the old root signed until the
    // switch.
    assert_eq!(seen, [Stage::Begun, Stage::Switched, Stage::Steady]);
    assert_eq!(now, NOW + (24 + 24 + 1) * HOUR);
    assert!(keeper.door.not_after() > now);
}

#[tokio::test]
async fn it_looks_as_soon_as_trust_changes() {
    let fixture = Fixture::new();
    let keeper = keeper(&fixture);
    let running = tokio::spawn(keeper.run());
    let mut trust = fixture.authority.watch_trust();
    let begun = fixture.authority.begin_rotation(&NextRoot::Make, at(NOW));
    begun.expect("begun");
    trust.changed().await.expect("told");
    // No node has to confirm.
    let deadline = Instant::now() + Duration::from_secs(20);
    while stage(&fixture) != Stage::Switched {
        assert!(Instant::now() < deadline);
        tokio::task::yield_now().await;
    }
    running.abort();
}

/// The operator is warned in time, with the remedy for a root or a site.
#[test]
fn what_signs_is_spoken_of_relative_to_its_life() {
    let fixture = Fixture::new();
    let mut keeper = keeper(&fixture);
    let authority = &fixture.authority;
    let expires = authority.expires();
    assert_eq!(authority.replace_from(), expires - 30 * 24 * HOUR);
    let said = keeper.end_of_signer(expires, NOW);
    assert!(said.contains("heddle root rotate"), "{said}");
    keeper.look();
    assert_eq!(keeper.speak_at, 0, "nothing is said yet");

    let folder = fixture.state().with_file_name("site");
    let request = request_site(&folder, authority.trust_domain());
    let request = CertificateRequest::parse(&request.expect("a request"));
    let life = Duration::from_secs(20 * HOUR);
    let signed = authority.sign_site(&request.expect("a request"), life, at(NOW));
    let signed = signed.expect("signed");
    for (name, text) in [
        ("intermediate.pem", signed.intermediate_pem),
        ("root.pem", signed.roots_pem),
    ] {
        std::fs::write(folder.join(name), text).expect("written");
    }
    let settings = AuthoritySettings::default();
    let site = Authority::open(&folder, authority.trust_domain(), settings, at(NOW));
    let site = Arc::new(site.expect("a site"));
    assert!(site.is_site() && !authority.is_site());
    let left = site.expires() - site.replace_from();
    assert!((5 * HOUR..6 * HOUR).contains(&left), "{left} s are left");
    keeper.authority = site;
    let said = keeper.end_of_signer(expires, NOW);
    assert!(
        said.contains("heddle site request") && !said.contains("root rotate"),
        "{said}"
    );
}
