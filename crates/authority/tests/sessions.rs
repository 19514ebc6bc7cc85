//! Sessions between nodes accept the certificates that the authority issues.

#![allow(clippy::unwrap_used, reason = "in a test a panic is the message")]

use std::collections::BTreeSet;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use heddle_authority::{
    Authority, AuthoritySettings, CertificateRequest, Denied, DenyEntry, NextRoot, Serial,
    UnixTime, request_site,
};
use heddle_model::{NodeName, ServiceAccountName, SpiffeId, TrustDomain};
use heddle_transport::{Clock, Identities, Leaf, Peer, Refusal, TlsError, Trust};
use rcgen::{CertificateParams, KeyPair};
use zeroize::Zeroizing;

const NOW: u64 = 1_780_000_000;
const DAY: u64 = 86_400;

fn at(seconds: u64) -> UnixTime {
    UnixTime::since_unix_epoch(Duration::from_secs(seconds))
}

fn domain() -> TrustDomain {
    TrustDomain::parse("cluster.local").unwrap()
}

fn account(name: &str) -> ServiceAccountName {
    ServiceAccountName::new("shop", name).unwrap()
}

fn open(dir: &Path) -> Authority {
    Authority::open(dir, &domain(), AuthoritySettings::default(), at(NOW)).unwrap()
}

fn leaf(authority: &Authority, id: &SpiffeId) -> Arc<Leaf> {
    let key = KeyPair::generate().unwrap();
    let request = CertificateParams::default()
        .serialize_request(&key)
        .unwrap();
    let request = CertificateRequest::parse(request.der()).unwrap();
    let node = NodeName::parse("n1").unwrap();
    let issued = authority.issue_to(&node, id, &request, at(NOW)).unwrap();
    let chain = issued.chain.iter().map(|der| der.to_vec()).collect();
    Arc::new(Leaf::new(chain, &Zeroizing::new(key.serialize_der())).unwrap())
}

/// A node that trusts the roots of `trusted`, with a workload's leaf issued by `issuer`.
fn node(trusted: &Authority, issuer: &Authority, workload: &str) -> Identities {
    let trust = trusted.trust();
    let mut denied = heddle_transport::Denied::default();
    for (what, _) in trust.denied.entries() {
        match what {
            Denied::Serial(serial) => {
                denied.serials.insert(serial.as_bytes().as_slice().into());
            }
            Denied::Identity(id) => {
                denied.ids.insert(id.clone());
            }
        }
    }
    let roots: Vec<_> = trust
        .bundle
        .roots
        .iter()
        .map(|root| root.to_vec())
        .collect();
    let trust = Arc::new(Trust::new(domain(), &roots, denied).unwrap());
    let clock = Arc::new(Clock::with(0, || NOW));
    let own = SpiffeId::node(domain(), NodeName::parse("n1").unwrap());
    let workload = SpiffeId::workload(domain(), account(workload));
    let leaves = [leaf(issuer, &workload)];
    Identities::new(trust, clock, leaf(issuer, &own), leaves).unwrap()
}

/// The peer that the server authenticates at the other end.
fn call(client: &Identities, server: &Identities) -> Result<Peer, TlsError> {
    let source = account("web");
    let protocol = heddle_transport::Protocol::Link;
    let client = client.connect(Some(&source), &account("cart"), protocol);
    let mut client = client.unwrap();
    let mut server = server.accept().unwrap();
    let (mut up, mut down) = (Vec::new(), Vec::new());
    client.receive(&mut [], &mut up, &mut |_| {})?;
    while !(up.is_empty() && down.is_empty()) {
        server.receive(&mut std::mem::take(&mut up), &mut down, &mut |_| {})?;
        client.receive(&mut std::mem::take(&mut down), &mut up, &mut |_| {})?;
    }
    Ok(server.peer().cloned().expect("it is established"))
}

#[test]
fn nodes_of_one_authority_and_of_its_site_talk() {
    let dir = tempfile::tempdir().unwrap();
    let root = open(&dir.path().join("root"));
    let site_dir = dir.path().join("site");
    let request = request_site(&site_dir, &domain()).unwrap();
    let request = CertificateRequest::parse(&request).unwrap();
    let month = Duration::from_secs(30 * DAY);
    let signed = root.sign_site(&request, month, at(NOW)).unwrap();
    for (file, text) in [
        ("intermediate.pem", signed.intermediate_pem),
        ("root.pem", signed.roots_pem),
    ] {
        std::fs::write(site_dir.join(file), text).unwrap();
    }
    let site = open(&site_dir);
    for (client, server) in [
        (&root, &root),
        (&root, &site),
        (&site, &root),
        (&site, &site),
    ] {
        let peer = call(&node(&root, client, "web"), &node(&site, server, "cart")).unwrap();
        assert_eq!(peer.node.unwrap().as_str(), "n1");
        assert_eq!(peer.id, SpiffeId::workload(domain(), account("web")));
        assert_eq!(peer.not_after, NOW + DAY);
        // Authority and transport agree on the serial number of a certificate.
        let serial = Serial::from_be_bytes(&peer.serial).unwrap();
        assert_eq!(serial.as_bytes().as_slice(), &*peer.serial);
    }
}

#[test]
fn strangers_and_the_denied_are_refused() {
    let dir = tempfile::tempdir().unwrap();
    let own = open(&dir.path().join("own"));
    let other = open(&dir.path().join("other"));
    let refused = call(&node(&own, &other, "web"), &node(&own, &own, "cart"));
    assert_eq!(refused, Err(TlsError::Refused(Refusal::UnknownAuthority)));

    let client = node(&own, &own, "web");
    let peer = call(&client, &node(&own, &own, "cart")).unwrap();
    let serial = Serial::from_be_bytes(&peer.serial).unwrap();
    let entry = DenyEntry {
        reason: "test".to_owned(),
        expires: NOW + DAY,
    };
    own.deny(Denied::Serial(serial), entry, at(NOW)).unwrap();
    let refused = call(&client, &node(&own, &own, "cart"));
    assert_eq!(refused, Err(TlsError::Refused(Refusal::Denied)));
}

/// At every stage each unexpired leaf can connect to each other one.
#[test]
fn a_rotation_refuses_no_valid_leaf() {
    let dir = tempfile::tempdir().unwrap();
    let authority = open(&dir.path().join("root"));
    let before = node(&authority, &authority, "web");
    authority.begin_rotation(&NextRoot::Make, at(NOW)).unwrap();
    // This node has confirmed both roots, with a leaf of the old one.
    let begun = node(&authority, &authority, "cart");
    assert!(call(&before, &begun).is_ok());
    let kept = node(&authority, &authority, "web");
    authority.switch_rotation(&[], false, at(NOW)).unwrap();
    let switched = node(&authority, &authority, "cart");
    let serials: BTreeSet<_> = [call(&kept, &begun), call(&kept, &switched)]
        .into_iter()
        .map(|peer| peer.unwrap().serial)
        .collect();
    assert_eq!(serials.len(), 1, "the same leaf is taken all along");
    // A node that does not know the new root refuses it, which is why the switch waits.
    let refused = call(&before, &switched);
    assert_eq!(refused, Err(TlsError::Refused(Refusal::UnknownAuthority)));
}
