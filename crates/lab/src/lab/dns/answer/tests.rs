use std::fs;
use std::str::FromStr;

use hickory_proto::op::{Metadata, Query};
use proptest::prelude::*;

use super::*;
use crate::lab::plan::Plan;

/// `web` has both families, `old` has one, `all` has 100 pods and no cluster address.
fn zone() -> Zone {
    let mut text = String::new();
    for (name, spec) in [
        ("web", ""),
        ("old", "ipFamilies: [IPv4],"),
        ("all", "clusterIP: None,"),
    ] {
        text += &format!(
            "---\n{{apiVersion: v1, kind: Service, metadata: {{name: {name}, namespace: shop}}, \
             spec: {{{spec} selector: {{app: all}}, ports: [{{port: 80}}]}}}}\n"
        );
    }
    for pod in 0..100 {
        text += &format!(
            "---\n{{apiVersion: heddle.dev/v1alpha1, kind: LocalWorkload, \
             metadata: {{name: p{pod}, namespace: shop, labels: {{app: all}}}}, \
             spec: {{ports: [{{port: 80}}]}}}}\n"
        );
    }
    let folder = tempfile::tempdir().unwrap();
    fs::create_dir(folder.path().join("mesh")).unwrap();
    fs::write(folder.path().join("mesh/all.yaml"), text).unwrap();
    let file = folder.path().join("lab.yaml");
    fs::write(&file, "name: shop\nnodes: [one]\nmanifests: mesh\n").unwrap();
    Zone::of(&Plan::read(&file).unwrap()).unwrap()
}

fn question(name: &str, kind: RecordType) -> Message {
    let mut message = Message::query();
    message.metadata.recursion_desired = true;
    message.add_query(Query::query(Name::from_str(name).unwrap(), kind));
    message
}

fn ask(zone: &Zone, name: &str, kind: RecordType) -> Message {
    let bytes = question(name, kind).to_vec().unwrap();
    Message::from_vec(&to(&bytes, Over::Connection, zone).unwrap()).unwrap()
}

#[test]
fn names_are_answered_as_a_cluster_does() {
    use RecordType as Kind;
    use ResponseCode::{NXDomain, NoError, Refused};
    let zone = zone();
    for (name, kind, code, answers) in [
        (
            "web.shop.svc.cluster.local.",
            Kind::A,
            NoError,
            &["10.96.0.1"][..],
        ),
        (
            "WEB.Shop.svc.cluster.LOCAL.",
            Kind::A,
            NoError,
            &["10.96.0.1"],
        ),
        (
            "web.shop.svc.cluster.local.",
            Kind::AAAA,
            NoError,
            &["fd68:6c:60::1"],
        ),
        ("web.shop.svc.cluster.local.", Kind::MX, NoError, &[]),
        (
            "old.shop.svc.cluster.local.",
            Kind::A,
            NoError,
            &["10.96.0.2"],
        ),
        // The name exists, but has no address of this type.
        ("old.shop.svc.cluster.local.", Kind::AAAA, NoError, &[]),
        (
            "p7.all.shop.svc.cluster.local.",
            Kind::A,
            NoError,
            &["10.1.1.8"],
        ),
        // These names exist only as parents of others.
        ("shop.svc.cluster.local.", Kind::A, NoError, &[]),
        ("cluster.local.", Kind::A, NoError, &[]),
        ("none.shop.svc.cluster.local.", Kind::A, NXDomain, &[]),
        (
            "web.shop.svc.cluster.local.svc.cluster.local.",
            Kind::A,
            NXDomain,
            &[],
        ),
        ("example.com.", Kind::A, Refused, &[]),
        ("notcluster.local.", Kind::A, Refused, &[]),
        (".", Kind::NS, Refused, &[]),
    ] {
        let answer = ask(&zone, name, kind);
        assert_eq!(answer.metadata.response_code, code, "{name} {kind}");
        let found = answer.answers.iter().map(|record| record.data.to_string());
        assert_eq!(found.collect::<Vec<_>>(), answers, "{name} {kind}");
        // A negative response has an SOA record: it limits caching.
        let says_how_long = answer.authorities.len() == 1;
        assert_eq!(
            says_how_long,
            answers.is_empty() && code != Refused,
            "{name} {kind}"
        );
        assert_eq!(answer.metadata.authoritative, code != Refused);
    }
}

#[test]
fn a_headless_service_is_at_its_pods() {
    let answer = ask(&zone(), "all.shop.svc.cluster.local.", RecordType::AAAA);
    assert_eq!(answer.answers.len(), 100);
}

#[test]
fn what_does_not_fit_into_a_datagram_is_asked_for_again() {
    let zone = zone();
    let question = question("all.shop.svc.cluster.local.", RecordType::A)
        .to_vec()
        .unwrap();
    let bytes = to(&question, Over::Datagrams, &zone).unwrap();
    assert!(bytes.len() <= 512);
    let answer = Message::from_vec(&bytes).unwrap();
    assert!(answer.metadata.truncation);
    let whole = to(&question, Over::Connection, &zone).unwrap();
    assert!(!Message::from_vec(&whole).unwrap().metadata.truncation);
}

#[test]
fn what_is_no_question_is_refused_or_ignored() {
    let zone = zone();
    let code = |bytes: &[u8]| {
        let answer = to(bytes, Over::Datagrams, &zone)?;
        Some(Message::from_vec(&answer).unwrap().metadata.response_code)
    };
    let mut response = question("web.shop.svc.cluster.local.", RecordType::A);
    response.metadata.message_type = MessageType::Response;
    let mut update = question("web.shop.svc.cluster.local.", RecordType::A);
    update.metadata = Metadata::new(7, MessageType::Query, OpCode::Notify);
    let mut two = question("web.shop.svc.cluster.local.", RecordType::A);
    two.add_query(two.queries[0].clone());
    for (bytes, expected) in [
        (Vec::new(), None),
        (vec![0; 2], None),
        (response.to_vec().unwrap(), None),
        // The header announces a question, but none follows.
        (
            [&[0, 1, 1, 0, 0, 1][..], &[0; 6]].concat(),
            Some(ResponseCode::FormErr),
        ),
        (update.to_vec().unwrap(), Some(ResponseCode::NotImp)),
        (two.to_vec().unwrap(), Some(ResponseCode::NotImp)),
    ] {
        assert_eq!(code(&bytes), expected, "{bytes:?}");
    }
}

proptest! {
    #[test]
    fn no_bytes_do_harm(bytes in proptest::collection::vec(any::<u8>(), 0..600)) {
        thread_local! { static ZONE: Zone = zone(); }
        ZONE.with(|zone| {
            for over in [Over::Datagrams, Over::Connection] {
                if let Some(answer) = to(&bytes, over, zone) {
                    prop_assert!(answer.len() <= usize::from(u16::MAX));
                }
            }
            Ok(())
        })?;
    }
}
