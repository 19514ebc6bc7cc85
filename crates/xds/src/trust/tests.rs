use heddle_model::NodeName;

use super::*;
use crate::proto::deny_entry::What;

fn id() -> SpiffeId {
    let domain = TrustDomain::parse("cluster.local").unwrap();
    SpiffeId::node(domain, NodeName::parse("n1").unwrap())
}

#[test]
fn what_is_sent_is_what_arrives() {
    let list = DenyList {
        generation: 7,
        entries: vec![
            DenyEntry {
                what: Denied::Serial([7; 16]),
                expires: 1,
            },
            DenyEntry {
                what: Denied::Identity(id()),
                expires: u64::MAX,
            },
        ],
    };
    let sent = proto::DenyList::from(list.clone());
    assert_eq!(DenyList::try_from(sent), Ok(list));

    let bundle = Bundle {
        generation: 1,
        roots: vec![vec![1].into(), vec![2].into()],
    };
    let sent = proto::Bundle::from(bundle.clone());
    assert_eq!(Bundle::try_from(sent), Ok(bundle));
}

#[test]
fn chains_and_bundles_have_bounds() {
    for (count, length, taken) in [
        (0, 1, false),
        (1, 0, false),
        (1, 1, true),
        (2, MAX_CERTIFICATE_BYTES, true),
        (1, MAX_CERTIFICATE_BYTES + 1, false),
        (MAX_ROOTS, 1, true),
        (MAX_ROOTS + 1, 1, false),
    ] {
        let bundle = proto::Bundle {
            generation: 1,
            roots: vec![vec![0; length]; count],
        };
        assert_eq!(
            Bundle::try_from(bundle).is_ok(),
            taken,
            "{count} of {length}"
        );
    }
    let chain = |count| proto::Certificate {
        chain: vec![vec![0]; count],
        not_after: 1,
    };
    assert!(Certificate::try_from(chain(MAX_CHAIN)).is_ok());
    assert!(Certificate::try_from(chain(MAX_CHAIN + 1)).is_err());
    let unnumbered = proto::Bundle {
        generation: 0,
        roots: vec![vec![0]],
    };
    let refused = Bundle::try_from(unnumbered);
    assert_eq!(refused, Err(Invalid("bundle.generation")));
}

#[test]
fn an_entry_that_is_not_understood_is_an_error() {
    for what in [
        None,
        Some(What::Serial(vec![1; 15])),
        Some(What::Serial(Vec::new())),
        Some(What::SpiffeId("spiffe://cluster.local".to_owned())),
        Some(What::SpiffeId("x".repeat(MAX_SPIFFE_ID_BYTES + 1))),
    ] {
        let list = proto::DenyList {
            generation: 1,
            entries: vec![proto::DenyEntry { what, expires: 1 }],
        };
        assert!(DenyList::try_from(list).is_err());
    }
    let many = proto::DenyList {
        generation: 1,
        entries: vec![proto::DenyEntry::default(); MAX_DENIED + 1],
    };
    assert_eq!(DenyList::try_from(many), Err(Invalid("deny_list.entries")));
}

#[test]
fn a_request_to_join_does_not_show_its_secret() {
    let request = proto::JoinRequest {
        token_secret: vec![171; 32],
        ..Default::default()
    };
    assert!(!format!("{request:?}").contains("171"));
}
