//! Sessions with stock proxies, such as Envoys.

use heddle_model::{NodeName, ServiceName, StockDestination, WorkloadName};
use rustls::ClientConfig;
use rustls::client::UnbufferedClientConnection;
use rustls::server::UnbufferedServerConnection;

use super::*;
use crate::Leaf;
use crate::fixture::stock;

const SNI: &str = "80.web.shop.svc.reviews.shop.sa.mesh.test";
const PLAIN: &str = "reviews.shop.sa.mesh.test";

fn own(authority: &Authority, name: &str) -> Arc<Leaf> {
    authority.leaf_for(None, &id(name), NOW - DAY, NOW + DAY)
}

fn tls_client(config: &Arc<ClientConfig>, sni: &str) -> Tls {
    let name = sni.to_owned().try_into().unwrap();
    Tls::client(UnbufferedClientConnection::new(Arc::clone(config), name).unwrap())
}

/// Exchanges bytes until neither side has more to send.
fn exchange(
    mut client: impl FnMut(&mut [u8], &mut Vec<u8>) -> bool,
    mut server: impl FnMut(&mut [u8], &mut Vec<u8>) -> bool,
) {
    let (mut to_server, mut to_client) = (Vec::new(), Vec::new());
    let (mut client_goes_on, mut server_goes_on) = (client(&mut [], &mut to_server), true);
    while !(to_server.is_empty() && to_client.is_empty()) {
        let mut bytes = std::mem::take(&mut to_server);
        server_goes_on = server_goes_on && server(&mut bytes, &mut to_client);
        let mut bytes = std::mem::take(&mut to_client);
        client_goes_on = client_goes_on && client(&mut bytes, &mut to_server);
    }
}

/// A stock proxy calls a node. Returns the node's session, or why it was refused.
fn calls(
    config: &Arc<ClientConfig>,
    sni: &str,
    node: &Identities,
) -> Result<(Tls, Session), Refusal> {
    let mut client = tls_client(config, sni);
    let mut server = node.accept().unwrap();
    let mut refused = None;
    exchange(
        |bytes, out| client.receive(bytes, out, &mut |_| {}).is_ok(),
        |bytes, out| match server.receive(bytes, out, &mut |_| {}) {
            Ok(_) => true,
            Err(TlsError::Refused(refusal)) => {
                refused = Some(refusal);
                false
            }
            Err(other) => panic!("{other}"),
        },
    );
    refused.map_or(Ok((client, server)), Err)
}

/// A node calls a stock proxy. Returns its session, or why it refuses the proxy.
fn called(
    node: &Identities,
    protocol: Protocol,
    (leaf, offers): (&Arc<Leaf>, &[Protocol]),
    trust: Arc<Trust>,
) -> Result<Session, Refusal> {
    let mut client = node
        .connect_stock(&account("cart"), &account("reviews"), protocol)
        .unwrap();
    let config = stock::server(leaf, trust, clock(), offers);
    let mut server = Tls::server(UnbufferedServerConnection::new(config).unwrap());
    let mut refused = None;
    exchange(
        |bytes, out| match client.receive(bytes, out, &mut |_| {}) {
            Ok(_) => true,
            Err(TlsError::Refused(refusal)) => {
                refused = Some(refusal);
                false
            }
            Err(other) => panic!("{other}"),
        },
        |bytes, out| server.receive(bytes, out, &mut |_| {}).is_ok(),
    );
    refused.map_or(Ok(client), Err)
}

#[test]
fn a_stock_client_names_what_it_calls_and_is_what_its_own_certificate_says() {
    let authority = Authority::new();
    let node = authority.node(&[authority.usual("reviews")]);
    for protocol in Protocol::STOCK {
        let config = stock::client(&own(&authority, "cart"), &[protocol]);
        let (_, session) = calls(&config, SNI, &node).unwrap();
        let peer = session.peer().unwrap();
        assert_eq!((&peer.id, &peer.node), (&id("cart"), &None));
        assert_eq!(session.protocol(), Some(protocol));
        assert_eq!(session.server_id(), Some(&id("reviews")));
        let Some(StockDestination::Port(asked)) = session.asked() else {
            panic!("{:?}", session.asked());
        };
        assert_eq!(asked.service, ServiceName::new("shop", "web").unwrap());
        assert_eq!((asked.port, &asked.account), (80, &account("reviews")));
        assert_eq!(node.check(peer), Ok(()));
        assert!(node.root_of(&session).is_some());
    }
}

#[test]
fn a_stock_client_may_only_show_a_workloads_own_certificate() {
    let authority = Authority::new();
    let node = authority.node(&[authority.usual("reviews")]);
    let unmarked = |id: &SpiffeId| authority.leaf_for(None, id, NOW - DAY, NOW + DAY);
    let envoy = WorkloadName::new("shop", "cart").unwrap();
    let nodes = SpiffeId::node(domain(), NodeName::parse("edge-1").unwrap());
    for leaf in [
        authority.usual("cart"),
        unmarked(&nodes),
        unmarked(&SpiffeId::control(domain())),
        unmarked(&SpiffeId::envoy(domain(), envoy)),
    ] {
        for protocol in Protocol::STOCK {
            let config = stock::client(&leaf, &[protocol]);
            let refused = calls(&config, SNI, &node).err();
            assert_eq!(refused, Some(Refusal::NotAWorkload), "{leaf:?}");
        }
    }
}

#[test]
fn the_server_name_fits_the_protocol() {
    let authority = Authority::new();
    let node = authority.node(&[authority.usual("reviews")]);
    let refused = |leaf: &Arc<Leaf>, protocols: &[Protocol], sni: &str| {
        calls(&stock::client(leaf, protocols), sni, &node).err()
    };
    let (marked, unmarked) = (authority.usual("cart"), own(&authority, "cart"));
    for leaf in [&marked, &unmarked] {
        for protocol in Protocol::STOCK {
            for sni in [
                PLAIN,
                "80.web.shop.svc.other.shop.sa.mesh.test",
                "080.web.shop.svc.reviews.shop.sa.mesh.test",
                "80.web.shop.svc.reviews.shop.sa.other.test",
                "80.web.shop.svc.edge-1.node.mesh.test",
            ] {
                let why = refused(leaf, &[protocol], sni);
                assert_eq!(why, Some(Refusal::UnknownServer), "{sni}");
            }
        }
        for protocol in Protocol::NODES {
            let why = refused(leaf, &[protocol], SNI);
            assert_eq!(why, Some(Refusal::UnknownServer), "{protocol:?}");
            // Of both kinds, the one between nodes is chosen.
            let both = [Protocol::StockHttp, protocol];
            assert_eq!(refused(leaf, &both, SNI), Some(Refusal::UnknownServer));
        }
        assert_eq!(refused(leaf, &[], PLAIN), Some(Refusal::Protocol));
    }
    for protocol in Protocol::NODES {
        let why = refused(&unmarked, &[protocol], PLAIN);
        assert_eq!(why, Some(Refusal::NotANode), "{protocol:?}");
        let both = [Protocol::StockHttp, protocol];
        assert_eq!(refused(&unmarked, &both, PLAIN), Some(Refusal::NotANode));
        assert_eq!(refused(&marked, &[protocol], PLAIN), None);
    }
}

/// An account may have a name that could also be the one of a Service's port.
#[test]
fn the_protocol_decides_what_a_server_name_means() {
    let authority = Authority::new();
    let odd = "80.web.shop.svc.reviews";
    let node = authority.node(&[authority.usual("reviews"), authority.usual(odd)]);
    let config = stock::client(&authority.usual("cart"), &[Protocol::Link]);
    let (_, session) = calls(&config, SNI, &node).unwrap();
    assert_eq!(session.server_id(), Some(&id(odd)));
    assert_eq!(session.asked(), None);
    let config = stock::client(&own(&authority, "cart"), &[Protocol::StockHttp]);
    let (_, session) = calls(&config, SNI, &node).unwrap();
    assert_eq!(session.server_id(), Some(&id("reviews")));
    assert!(session.asked().is_some());
}

#[test]
fn a_ticket_of_one_kind_of_peer_opens_nothing_of_the_other() {
    let authority = Authority::new();
    let odd = "80.web.shop.svc.reviews";
    let node = authority.node(&[authority.usual("reviews"), authority.usual(odd)]);
    for (leaf, first, second, refusal) in [
        (
            own(&authority, "cart"),
            Protocol::StockHttp,
            Protocol::Link,
            Refusal::NotANode,
        ),
        (
            authority.usual("cart"),
            Protocol::Link,
            Protocol::StockBytes,
            Refusal::NotAWorkload,
        ),
    ] {
        let config = stock::client(&leaf, &[first]);
        calls(&config, SNI, &node).unwrap();
        let (_, again) = calls(&config, SNI, &node).unwrap();
        assert!(again.tls.was_resumed());
        // The same store of tickets, and the same server name.
        let mut other = ClientConfig::clone(&config);
        other.alpn_protocols = vec![second.alpn().to_vec()];
        let refused = calls(&Arc::new(other), SNI, &node).err();
        assert_eq!(refused, Some(refusal));
    }
}

#[test]
fn trust_counts_for_stock_clients_as_for_nodes() {
    let authority = Authority::new();
    let leaf = own(&authority, "cart");
    let config = stock::client(&leaf, &[Protocol::StockHttp]);
    let node = |trust, clock| authority.node_with(trust, clock, &[authority.usual("reviews")]);
    let by_serial = Denied {
        serials: [leaf.serial().into()].into(),
        ..Denied::default()
    };
    let by_id = Denied {
        ids: [id("cart")].into(),
        ..Denied::default()
    };
    for denied in [by_serial, by_id] {
        let node = node(authority.trust(denied), clock());
        assert_eq!(calls(&config, SNI, &node).err(), Some(Refusal::Denied));
    }
    let usual = || authority.trust(Denied::default());
    let expired = authority.leaf_for(None, &id("cart"), NOW - 2 * DAY, NOW - DAY);
    let early = authority.leaf_for(None, &id("cart"), NOW + DAY, NOW + 2 * DAY);
    let foreign = own(&Authority::new(), "cart");
    for (leaf, refusal) in [
        (expired, Refusal::Expired),
        (early, Refusal::NotYetValid),
        (foreign, Refusal::UnknownAuthority),
    ] {
        let config = stock::client(&leaf, &[Protocol::StockHttp]);
        let refused = calls(&config, SNI, &node(usual(), clock())).err();
        assert_eq!(refused, Some(refusal));
    }
}

#[test]
fn a_node_calls_a_stock_server_that_has_its_own_certificate() {
    let authority = Authority::new();
    let node = authority.node(&[authority.usual("cart"), authority.usual("reviews")]);
    let trust = || authority.trust(Denied::default());
    let proxy = own(&authority, "reviews");
    let all = &Protocol::STOCK[..];
    for protocol in Protocol::STOCK {
        let session = called(&node, protocol, (&proxy, all), trust()).unwrap();
        assert_eq!(session.peer().unwrap().id, id("reviews"));
        assert_eq!(session.protocol(), Some(protocol));
        assert_eq!((session.asked(), session.is_client()), (None, true));
        assert!(node.root_of(&session).is_some());
        // Twice: the second session may be resumed.
        assert!(called(&node, protocol, (&proxy, all), trust()).is_ok());
    }
    let http = Protocol::StockHttp;
    let refused =
        |leaf: &Arc<Leaf>, offers: &[Protocol]| called(&node, http, (leaf, offers), trust()).err();
    assert_eq!(
        refused(&authority.usual("reviews"), all),
        Some(Refusal::NotAWorkload)
    );
    let found = id("other");
    let expected = id("reviews");
    assert_eq!(
        refused(&own(&authority, "other"), all),
        Some(Refusal::WrongIdentity { expected, found })
    );
    assert_eq!(
        refused(&own(&Authority::new(), "reviews"), all),
        Some(Refusal::UnknownAuthority)
    );
    assert_eq!(refused(&proxy, &[]), Some(Refusal::Protocol));
    let stranger = account("stranger");
    let none = node.connect_stock(&stranger, &account("reviews"), http);
    assert_eq!(none.unwrap_err(), crate::NoIdentity::Missing);
}
