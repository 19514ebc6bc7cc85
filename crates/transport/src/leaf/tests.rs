use super::*;
use heddle_model::NodeName;

use crate::fixture::{Authority, DAY, NOW, domain, id};

#[test]
fn a_leaf_says_which_identity_it_proves_and_never_its_key() {
    let authority = Authority::new();
    let (certificate, key) = authority.sign(&[&id("cart").to_string()], NOW, NOW + DAY);
    let leaf = Leaf::new(vec![certificate.clone()], &key).unwrap();
    assert_eq!(leaf.id(), &id("cart"));
    assert_eq!((leaf.not_before(), leaf.not_after()), (NOW, NOW + DAY));
    let shown = format!("{leaf:?}");
    let numbers: Vec<String> = key.iter().map(u8::to_string).collect();
    assert!(!shown.contains(&numbers[20..28].join(", ")), "{shown}");

    let (_, other) = authority.sign(&[&id("cart").to_string()], NOW, NOW + DAY);
    let mismatch = Leaf::new(vec![certificate.clone()], &other).unwrap_err();
    assert_eq!(mismatch, LeafError::Mismatch);
    let garbage = Zeroizing::new(vec![1, 2, 3]);
    let no_key = Leaf::new(vec![certificate], &garbage).unwrap_err();
    assert_eq!(no_key, LeafError::Key);
    assert_eq!(Leaf::new(Vec::new(), &key).unwrap_err(), LeafError::Empty);
}

#[test]
fn a_certificate_names_exactly_one_identity() {
    let authority = Authority::new();
    let (one, two) = (id("cart").to_string(), id("shop").to_string());
    let read = |uris: &[&str]| Peer::read(&authority.sign(uris, NOW, NOW + DAY).0);
    assert_eq!(read(&[&one]).unwrap().id, id("cart"));
    assert_eq!(read(&[]), Err(Refusal::NoSpiffeId));
    assert_eq!(read(&[&one, &two]), Err(Refusal::NoSpiffeId));
    assert_eq!(read(&[&one, &one]), Err(Refusal::NoSpiffeId));
    assert_eq!(read(&["https://shop.example/"]), Err(Refusal::NoSpiffeId));
    assert_eq!(
        read(&["spiffe://mesh.test/workload"]),
        Err(Refusal::NoSpiffeId)
    );
}

#[test]
fn a_mark_names_the_node_that_has_the_key() {
    let authority = Authority::new();
    let web = id("web").to_string();
    let node = SpiffeId::node(domain(), NodeName::parse("edge-1").unwrap()).to_string();
    let control = SpiffeId::control(domain()).to_string();
    let read = |node: Option<&str>, uri: &str| {
        let (certificate, _) = authority.sign_for(node, &[uri], NOW, NOW + DAY);
        Peer::read(&certificate).map(|peer| peer.node.map(|node| node.as_str().to_owned()))
    };
    let long = format!("a.{}", "b".repeat(60))
        .repeat(4)
        .replace("bba", "bb.a");
    for name in ["edge-1", "a", &long] {
        assert_eq!(read(Some(name), &web), Ok(Some(name.to_owned())));
    }
    assert_eq!(read(None, &web), Ok(None));
    // The node's own identity already names the node.
    assert_eq!(read(None, &node), Ok(Some("edge-1".to_owned())));
    assert_eq!(read(Some("edge-1"), &node), Ok(Some("edge-1".to_owned())));
    assert_eq!(read(None, &control), Ok(None));
    for (mark, uri) in [
        ("edge-2", &node),
        ("edge-1", &control),
        ("", &web),
        ("Edge 1", &web),
    ] {
        let refused = read(Some(mark), uri);
        assert!(matches!(refused, Err(Refusal::BadCertificate(_))), "{mark}");
    }
}

#[test]
fn what_is_no_certificate_is_refused() {
    let authority = Authority::new();
    let (whole, _) = authority.sign(&[&id("cart").to_string()], NOW, NOW + DAY);
    for cut in 0..whole.len() {
        assert!(Peer::read(&whole[..cut]).is_err(), "{cut} bytes");
    }
    let longer = [&whole[..], b"x"].concat();
    assert!(Peer::read(&longer).is_err());
    assert!(Peer::read(&vec![0x30; MAX_CERTIFICATE_BYTES + 1]).is_err());
    assert!(
        matches!(Peer::read(&authority.root), Err(Refusal::BadCertificate(_))),
        "an authority is no leaf"
    );
}
