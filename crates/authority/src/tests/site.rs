use super::*;

const MONTH: Duration = Duration::from_secs(30 * DAY);

/// A root's authority, and the folder of a site that it signed.
fn site() -> (Place, Authority, Place) {
    let (central, site) = (Place::new(), Place::new());
    let root = central.open();
    let request = request_site(&site.dir, &domain()).unwrap();
    let request = CertificateRequest::parse(&request).unwrap();
    let signed = root.sign_site(&request, MONTH, at(NOW)).unwrap();
    site.put("intermediate.pem", &signed.intermediate_pem);
    site.put("root.pem", &signed.roots_pem);
    (central, root, site)
}

#[test]
fn a_site_issues_without_the_roots_key() {
    let (_central, root, site) = site();
    let own = site.open();
    assert_eq!(own.origin(), Origin::Supplied);
    assert!(!site.dir.join("root.key").exists());
    let id = workload("shop", "cart");
    let issued = own.issue(&id, &request(), at(NOW)).unwrap();
    assert_eq!(issued.chain.len(), 2);
    // A node that trusts the root accepts the leaf, at this site and at others.
    assert!(verifies(&issued.chain, &root.trust().bundle, NOW));
    assert_eq!(own.root_sha256(), root.root_sha256());
    assert_eq!(own.expires(), NOW + 30 * DAY);

    let last = NOW + 30 * DAY - HOUR;
    let issued = own.issue(&id, &request(), at(last)).unwrap();
    assert!(issued.shortened);
    assert_eq!(issued.not_after, NOW + 30 * DAY);
    drop(own);
    assert_eq!(site.open().origin(), Origin::Kept);
    let expired = site.try_open(NOW + 31 * DAY).unwrap_err().to_string();
    assert!(
        expired.contains("intermediate.pem: the certificate expired"),
        "{expired}"
    );
}

#[test]
fn a_sites_request_can_be_made_again() {
    let place = Place::new();
    let once = request_site(&place.dir, &domain()).unwrap();
    let twice = request_site(&place.dir, &domain()).unwrap();
    let key = |der: &[u8]| CertificateRequest::parse(der).unwrap();
    assert_eq!(key(&once), key(&twice));
    // A folder without its certificates is refused, and does not get a root of its own.
    assert!(
        place.error().contains("root.pem: it is not there"),
        "{}",
        place.error()
    );
}

#[test]
fn a_site_signs_no_sites_and_rotates_nothing() {
    let (_central, _root, site) = site();
    let own = site.open();
    let signed = own.sign_site(&request(), MONTH, at(NOW));
    assert!(matches!(signed, Err(SiteError::Site)));
    let begun = own.begin_rotation(&NextRoot::Make, at(NOW));
    assert!(matches!(begun, Err(RotationRefusal::Site)));
}

#[test]
fn a_site_whose_files_do_not_belong_together_is_refused() {
    let (central, root, other_site) = site();
    drop(root);
    let (_, _, site) = site();
    let cases: [(&str, &dyn Fn(), &str); 3] = [
        (
            "another root",
            &|| site.put("root.pem", &central.read("root.pem")),
            "what it signs does not verify against the root",
        ),
        (
            "another's certificate",
            &|| site.put("intermediate.pem", &other_site.read("intermediate.pem")),
            "the private key is another certificate's",
        ),
        (
            "the root's key",
            &|| site.put("root.key", &central.read("root.key")),
            "holds root.key and an intermediate",
        ),
    ];
    for (name, change, wanted) in cases {
        change();
        let error = site.error();
        assert!(error.contains(wanted), "{name}: {error}");
    }
}

#[test]
fn a_sites_certificates_are_replaced_when_the_root_rotates() {
    let (_central, root, site) = site();
    drop(site.open());
    root.begin_rotation(&NextRoot::Make, at(NOW)).unwrap();
    root.switch_rotation(&[], false, at(NOW)).unwrap();
    let status = root.rotation([], |_| None);
    // The old root stays until the site's intermediate expires.
    assert_eq!(status.old_until, Some(NOW + 30 * DAY));

    let request = request_site(&site.dir, &domain()).unwrap();
    let request = CertificateRequest::parse(&request).unwrap();
    let signed = root.sign_site(&request, MONTH, at(NOW)).unwrap();
    site.put("intermediate.pem", &signed.intermediate_pem);
    site.put("root.pem", &signed.roots_pem);
    let own = site.open();
    assert_eq!(own.origin(), Origin::Replaced);
    let bundle = own.trust().bundle;
    assert_eq!((bundle.generation, bundle.roots.len()), (2, 2));
    // The second root signed this time.
    assert_eq!(own.root_sha256(), root.root_sha256());
    let id = workload("shop", "cart");
    let issued = own.issue(&id, &super::request(), at(NOW)).unwrap();
    assert!(verifies(&issued.chain, &bundle, NOW));
}

#[test]
fn a_sites_life_has_bounds() {
    let place = Place::new();
    let root = place.open();
    for (life, taken) in [(3_599, false), (3_600, true), (367 * DAY, false)] {
        let signed = root.sign_site(&request(), Duration::from_secs(life), at(NOW));
        assert_eq!(signed.is_ok(), taken, "{life}");
    }
}

/// The chain root → site → leaf ends there: a leaf signs nothing, and a site does not sign another site.
#[test]
fn a_site_can_sign_nothing_but_leaves() {
    let (_central, root, site) = site();
    let own = site.open();
    let (_, certificate) = x509_parser::parse_x509_certificate(&own.signer().certificate.der)
        .map(|(rest, parsed)| {
            (
                rest.len(),
                parsed.basic_constraints().unwrap().unwrap().value.clone(),
            )
        })
        .unwrap();
    assert!(certificate.ca);
    assert_eq!(certificate.path_len_constraint, Some(0));
    // A second site below the first, made with the first's key.
    let key = KeyPair::generate().unwrap();
    let signer = own.signer();
    let below = certificate::site(
        &domain(),
        &key,
        &signer.issuer,
        &signer.certificate,
        MONTH,
        at(NOW),
    )
    .unwrap();
    let issuer = rcgen::Issuer::from_ca_cert_der(&below.der, key).unwrap();
    let mut params = CertificateParams::default();
    params.extended_key_usages = vec![
        rcgen::ExtendedKeyUsagePurpose::ServerAuth,
        rcgen::ExtendedKeyUsagePurpose::ClientAuth,
    ];
    let leaf = params
        .signed_by(&KeyPair::generate().unwrap(), &issuer)
        .unwrap();
    let chain = [
        leaf.der().clone(),
        below.der.clone(),
        signer.certificate.der.clone(),
    ];
    assert!(!verifies(&chain, &root.trust().bundle, NOW));
}
