use super::*;

fn access(endpoints: &[&str]) -> Access {
    Access {
        endpoints: endpoints.iter().map(ToString::to_string).collect(),
        ..Access::default()
    }
}

#[test]
fn endpoints_are_urls_of_one_kind() {
    for endpoints in [
        &["http://127.0.0.1:2379"][..],
        &["http://127.0.0.1:2379/"],
        &["http://a:2379", "http://[::1]:2379"],
    ] {
        assert_eq!(access(endpoints).check(), Ok(()), "{endpoints:?}");
    }
    let many = ["http://a:1"; 17];
    for endpoints in [
        &[][..],
        &[""],
        &["127.0.0.1:2379"],
        &["http://127.0.0.1"],
        &["http://:2379"],
        &["http://a:0"],
        &["http://a:99999"],
        &["http://user@a:2379"],
        &["http://a:2379/v3"],
        &["http://a b:2379"],
        &["ftp://a:2379"],
        &["http://a:1", "https://b:1"],
        &many,
    ] {
        assert!(access(endpoints).check().is_err(), "{endpoints:?}");
    }
}

#[test]
fn certificates_and_https_go_together() {
    let tls = Tls {
        ca: Some("ca.pem".into()),
        own: None,
    };
    let plain = access(&["http://a:2379"]);
    let secured = access(&["https://a:2379"]);
    assert!(
        Access {
            tls: tls.clone(),
            ..plain
        }
        .check()
        .is_err()
    );
    assert!(secured.check().is_err());
    assert_eq!(Access { tls, ..secured }.check(), Ok(()));
}

#[test]
fn one_endpoint_is_asked_after_the_other() {
    let two = access(&["http://a:1", "http://b:1"]);
    let asked: Vec<&str> = (0..4).map(|attempt| two.endpoint(attempt)).collect();
    assert_eq!(
        asked,
        ["http://a:1", "http://b:1", "http://a:1", "http://b:1"]
    );
    assert_eq!(Access::default().endpoint(3), "");
}

#[test]
fn a_status_says_whose_trouble_it_is() {
    use tonic::{Code, Status};
    for (code, message, expected) in [
        (
            Code::OutOfRange,
            "etcdserver: mvcc: required revision has been compacted",
            Trouble::Compacted,
        ),
        (
            Code::OutOfRange,
            "Error, decoded message length too large: found 9 bytes, the limit is: 8 bytes",
            Trouble::TooLarge,
        ),
        (
            Code::ResourceExhausted,
            "grpc: received message larger than max (9 vs. 8)",
            Trouble::TooLarge,
        ),
        (
            Code::NotFound,
            "etcdserver: requested lease not found",
            Trouble::NoLease,
        ),
    ] {
        assert_eq!(of_status(&Status::new(code, message)), expected);
    }
    let denied = Status::new(Code::PermissionDenied, "etcdserver: permission denied");
    assert!(matches!(of_status(&denied), Trouble::Ours(_)));
    // A login token expires; the next connection gets a new one.
    let token = Status::new(Code::Unauthenticated, "etcdserver: invalid auth token");
    assert!(matches!(of_status(&token), Trouble::Away(_)));
    let full = Status::new(Code::ResourceExhausted, "etcdserver: too many requests");
    assert!(matches!(of_status(&full), Trouble::Away(_)));
}
