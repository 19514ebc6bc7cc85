use heddle_model::{NodeName, ServiceAccountName};

use super::*;

const NOW: u64 = 1_800_000_000;

fn root() -> CertificateDer<'static> {
    let key = rcgen::KeyPair::generate().unwrap();
    let mut params = rcgen::CertificateParams::default();
    params.is_ca = rcgen::IsCa::Ca(rcgen::BasicConstraints::Unconstrained);
    params.self_signed(&key).unwrap().der().clone()
}

fn trusted() -> Trusted {
    let domain = TrustDomain::default();
    let account = ServiceAccountName::new("shop", "cart").unwrap();
    let entry = |what, expires| DenyEntry { what, expires };
    let mut serial = [0; 16];
    serial[3] = 7;
    Trusted {
        bundle: Bundle {
            generation: 2,
            roots: vec![root(), root()],
        },
        denied: DenyList {
            generation: 5,
            entries: vec![
                entry(heddle_xds::Denied::Serial(serial), NOW + 10),
                entry(
                    heddle_xds::Denied::Identity(SpiffeId::workload(domain.clone(), account)),
                    NOW + 20,
                ),
                entry(
                    heddle_xds::Denied::Identity(SpiffeId::node(
                        domain.clone(),
                        NodeName::parse("edge-9").unwrap(),
                    )),
                    NOW,
                ),
            ],
        },
        domain,
    }
}

#[test]
fn what_is_written_is_what_is_read() {
    let trusted = trusted();
    assert_eq!(Trusted::from_json(&trusted.to_json()), Ok(trusted));
}

#[test]
fn entries_of_the_deny_list_end() {
    let trusted = trusted();
    for (now, alive, next) in [
        (0, 3, Some(NOW)),
        (NOW, 2, Some(NOW + 10)),
        (NOW + 9, 2, Some(NOW + 10)),
        (NOW + 10, 1, Some(NOW + 20)),
        (NOW + 20, 0, None),
    ] {
        assert_eq!(
            (trusted.alive(now), trusted.next_end(now)),
            (alive, next),
            "{now}"
        );
        assert!(trusted.in_force(now).is_ok());
    }
}

#[test]
fn a_file_that_is_damaged_is_refused_with_what_is_wrong() {
    let good = String::from_utf8(trusted().to_json()).unwrap();
    let first_root = good.find("\"roots\": [").unwrap() + 20;
    let mut no_certificate = good.clone();
    no_certificate.replace_range(first_root..first_root + 8, "AAAAAAAA");
    for (text, expected) in [
        (String::new(), "EOF"),
        (good[..good.len() / 2].to_owned(), "EOF"),
        (good.replace("cluster.local", "no domain"), "trust domain"),
        (
            good.replace("\"bundle_generation\": 2", "\"bundle_generation\": 0"),
            "is 0",
        ),
        (good.replace("\"serial\"", "\"cereal\""), "unknown field"),
        (no_certificate, "not a valid certificate"),
    ] {
        let why = Trusted::from_json(text.as_bytes()).unwrap_err();
        assert!(why.contains(expected), "{why}");
    }
}
