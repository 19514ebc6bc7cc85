use heddle_authority::{DenyEntry, NextRoot};
use heddle_model::SpiffeId;
use heddle_transport::control::Connector;
use tokio::io::AsyncReadExt;
use tokio::net::TcpListener;

use super::*;
use crate::control::fixture::{Fixture, HOUR, NOW, at, node_id};

/// Connects a client, and returns the door's result.
async fn call(door: &Door, connector: &Connector) -> io::Result<Peer> {
    let listener = TcpListener::bind("127.0.0.1:0").await?;
    let client = TcpStream::connect(listener.local_addr()?).await?;
    let (stream, address) = listener.accept().await?;
    let (shaken, connected) = tokio::join!(door.shake(stream, address), connector.connect(client));
    let (_, peer) = shaken?;
    // The client must see a control plane.
    let (mut stream, control) = connected.map_err(io::Error::other)?;
    assert_eq!(control.id, SpiffeId::control(Default::default()));
    let _closed = stream.read_u8().await;
    Ok(peer)
}

fn joining(fixture: &Fixture, root: [u8; 32]) -> Connector {
    Connector::joining(root, &fixture.clock).expect("a connector")
}

fn joined(fixture: &Fixture, id: &SpiffeId) -> (Leaf, Connector) {
    let (trust, _, _) = trust(&fixture.authority, NOW).expect("trust");
    let leaf = fixture.leaf(id);
    let connector = Connector::joined(&leaf, &trust, &fixture.clock);
    (leaf, connector.expect("a connector"))
}

#[tokio::test]
async fn a_stranger_may_come_in_and_a_node_is_known() {
    let fixture = Fixture::new();
    let door = fixture.door();
    let stranger = joining(&fixture, fixture.authority.root_sha256());
    let peer = call(&door, &stranger).await.expect("let in");
    assert!(peer.certificate.is_none() && peer.address.is_some());

    let (leaf, node) = joined(&fixture, &node_id("n1"));
    let peer = call(&door, &node).await.expect("let in");
    let certificate = peer.certificate.expect("a certificate");
    assert_eq!(certificate.id, node_id("n1"));
    assert_eq!(certificate.not_after, NOW + 24 * HOUR);
    let serial = certificate.serial.expect("one of ours");
    assert_eq!(Serial::from_be_bytes(leaf.serial()), Some(serial));
}

#[tokio::test]
async fn who_is_denied_is_refused_and_counted_until_the_entry_expires() {
    let fixture = Fixture::new();
    let door = fixture.door();
    let (leaf, node) = joined(&fixture, &node_id("n1"));
    let serial = Serial::from_be_bytes(leaf.serial()).expect("one of ours");
    for what in [Denied::Identity(node_id("n1")), Denied::Serial(serial)] {
        let entry = DenyEntry {
            reason: "test".to_owned(),
            expires: NOW + HOUR,
        };
        let denied = fixture.authority.deny(what.clone(), entry, at(NOW));
        denied.expect("denied");
        door.refresh().expect("refreshed");
        let refused = call(&door, &node).await.expect_err("refused");
        assert!(refused.to_string().contains("deny-list"), "{refused}");
        let allowed = fixture.authority.allow(&what, at(NOW));
        assert!(allowed.expect("allowed"));
    }
    let counted: Vec<_> = door.refused().filter(|(_, count)| *count > 0).collect();
    assert_eq!(counted, [("denied", 2)]);

    let entry = DenyEntry {
        reason: "test".to_owned(),
        expires: NOW + HOUR,
    };
    let denied = fixture
        .authority
        .deny(Denied::Identity(node_id("n1")), entry, at(NOW));
    denied.expect("denied");
    door.refresh().expect("refreshed");
    fixture.set_time(NOW + HOUR - 1);
    door.refresh().expect("refreshed");
    call(&door, &node).await.expect_err("refused");
    fixture.set_time(NOW + HOUR);
    door.refresh().expect("refreshed");
    call(&door, &node).await.expect("let in again");
}

/// The handshake of a refused client is over, and counted, while the client may still read why.
#[tokio::test]
async fn a_refused_client_reads_why_after_its_handshake_is_over() {
    let (fixture, other) = (Fixture::new(), Fixture::new());
    let door = fixture.door();
    let (trust, _, _) = trust(&fixture.authority, NOW).expect("trust");
    let foreign = other.leaf(&node_id("n1"));
    let foreign = Connector::joined(&foreign, &trust, &fixture.clock).expect("a connector");
    let listener = TcpListener::bind("127.0.0.1:0").await.expect("a listener");
    let address = listener.local_addr().expect("its address");
    let client = TcpStream::connect(address).await.expect("connected");
    let (stream, address) = listener.accept().await.expect("accepted");
    let (shaken, connected) = tokio::join!(door.shake(stream, address), foreign.connect(client));
    shaken.map(drop).expect_err("refused");
    let counted: u64 = door.refused().map(|(_, count)| count).sum();
    assert_eq!(
        (counted, door.partings.available_permits()),
        (1, PARTINGS - 1)
    );
    let (mut stream, _) = connected.map_err(io::Error::other).expect("TLS 1.3");
    let why = stream.read_u8().await.expect_err("an alert");
    assert!(why.to_string().contains("alert"), "{why}");
    drop(stream);
    let _place = door
        .partings
        .acquire_many(PARTINGS as u32)
        .await
        .expect("every place is free again");
}

#[tokio::test]
async fn a_client_that_is_refused_is_counted_by_reason() {
    let (fixture, other) = (Fixture::new(), Fixture::new());
    let door = fixture.door();
    let (trust, _, _) = trust(&fixture.authority, NOW).expect("trust");
    // A certificate of another authority.
    let foreign = other.leaf(&node_id("n1"));
    let foreign = Connector::joined(&foreign, &trust, &fixture.clock).expect("a connector");
    let (_, own) = joined(&fixture, &node_id("n1"));
    call(&door, &foreign).await.expect_err("refused");
    call(&door, &foreign).await.expect_err("refused");
    fixture.set_time(NOW + 24 * HOUR + 1);
    door.refresh().expect("refreshed");
    call(&door, &own).await.expect_err("refused");

    let counted: Vec<_> = door.refused().filter(|(_, count)| *count > 0).collect();
    assert_eq!(counted, [("unknown_authority", 2), ("expired", 1)]);
}

#[tokio::test]
async fn the_own_certificate_is_renewed_at_half_life_and_when_another_root_signs() {
    let fixture = Fixture::new();
    let door = fixture.door();
    let first = door.not_after();
    fixture.set_time(NOW + 12 * HOUR - 1);
    door.refresh().expect("refreshed");
    assert_eq!(door.not_after(), first);
    fixture.set_time(NOW + 12 * HOUR);
    door.refresh().expect("refreshed");
    assert_eq!(door.not_after(), first + 12 * HOUR);

    let authority = &fixture.authority;
    let old = authority.root_sha256();
    let now = at(NOW + 12 * HOUR);
    let begun = authority.begin_rotation(&NextRoot::Make, now);
    begun.expect("begun");
    door.refresh().expect("refreshed");
    call(&door, &joining(&fixture, old))
        .await
        .expect("the old one");
    authority
        .switch_rotation(&[], false, now)
        .expect("switched");
    door.refresh().expect("refreshed");
    call(&door, &joining(&fixture, old))
        .await
        .expect_err("it is another root");
    let new = authority.root_sha256();
    call(&door, &joining(&fixture, new))
        .await
        .expect("the new one");
}

#[tokio::test]
async fn a_clock_that_was_ahead_for_a_while_leaves_no_certificate_of_later() {
    let fixture = Fixture::new();
    let door = fixture.door();
    let (_, node) = joined(&fixture, &node_id("n1"));
    fixture.set_time(NOW + 48 * HOUR);
    door.refresh().expect("refreshed");
    assert!(door.not_after() > NOW + 48 * HOUR);
    fixture.set_time(NOW);
    door.refresh().expect("refreshed");
    assert_eq!(door.not_after(), NOW + 24 * HOUR);
    call(&door, &node).await.expect("let in");
    // Some seconds are no matter.
    fixture.set_time(NOW - 30);
    door.refresh().expect("refreshed");
    assert_eq!(door.not_after(), NOW + 24 * HOUR);
}
