//! Connections made from inside pods' network namespaces.

use std::io::{ErrorKind, Write};
use std::net::{IpAddr, SocketAddr, TcpListener};
use std::os::fd::{AsFd, OwnedFd};
use std::sync::mpsc::{SyncSender, sync_channel};
use std::time::Instant;

use heddle_intercept::PodId;
use heddle_intercept::channel::{ToHolder, ToProxy, pair, receive, send};
use heddle_model::AppProtocol;
use heddle_proxy::Entry;
use rustix::event::{PollFd, PollFlags, poll};
use rustix::net::{AddressFamily, SocketFlags, SocketType, bind, connect, socket, socket_with};

use super::bed::{ECHO, NODE, SERVICE, Steered, listener, mesh, name};
use crate::support::{Client, GET, PATIENCE, Upstream, field};

#[test]
fn a_program_sees_who_calls_when_bytes_are_passed_on() {
    for protocol in [AppProtocol::Tcp, AppProtocol::Undeclared] {
        let (upstream, steered) = Steered::scripted(protocol, &["echo", "shop"]);
        let client = steered.dial("shop", SERVICE).sending("hello\n");
        let port = client.stream.local_addr().unwrap().port();
        let mut server = upstream.accept();
        assert_eq!(server.exact(6), b"hello\n");
        let peer = server.stream.peer_addr().unwrap();
        assert_eq!(peer, ([127, 30, 0, 2], port).into(), "{protocol:?}");
    }
}

#[test]
fn a_port_that_is_taken_is_another() {
    let (upstream, steered) = Steered::scripted(AppProtocol::Tcp, &["echo"]);
    let (_, address) = steered.outbound("shop", Some(SERVICE));
    // Another socket occupies the client's port number on the pod's address, with which the client would be shown.
    let (_taken, port, client) = std::iter::repeat_with(|| {
        let taken = TcpListener::bind("127.30.0.2:0").unwrap();
        let port = taken.local_addr().unwrap().port();
        let client = socket(AddressFamily::INET, SocketType::STREAM, None).unwrap();
        // Another test may occupy the port on 127.0.0.1 at the moment; then try again.
        let bound = bind(&client, &SocketAddr::from(([127, 0, 0, 1], port)));
        bound.ok().map(|()| (taken, port, client))
    })
    .take(100)
    .flatten()
    .next()
    .expect("a port that is free");
    connect(&client, &address).unwrap();
    let peer = upstream.accept().stream.peer_addr().unwrap();
    assert_eq!(peer.ip(), IpAddr::from([127, 30, 0, 2]));
    assert_ne!(peer.port(), port);
    let of = |port: u16| Some(SocketAddr::from(([127, 30, 0, 2], port)));
    steered.expect_asked(&[(1, of(port)), (1, of(0))]);
}

#[test]
fn a_pod_that_calls_itself_sees_itself() {
    let (upstream, steered) = Steered::scripted(AppProtocol::Tcp, &["echo"]);
    let _client = steered.dial("echo", SERVICE).sending("hello");
    assert_eq!(upstream.accept().exact(5), b"hello");
    steered.expect_asked(&[(1, None)]);
}

#[test]
fn requests_name_the_pod_that_they_come_from() {
    let (upstream, steered) = Steered::scripted(AppProtocol::Http, &["echo"]);
    let _client = steered.dial("shop", SERVICE).sending(GET);
    let head = upstream.accept().head();
    assert_eq!(field(&head, "x-forwarded-for"), Some("127.30.0.2"));
}

#[test]
fn a_connection_that_shows_one_client_carries_no_other() {
    let upstream = Upstream::at(ECHO);
    let open = mesh(upstream.address, AppProtocol::Undeclared);
    let steered = Steered::new(&open, &["echo", "shop"]);
    let mut client = steered.dial("shop", SERVICE);
    let mut ask = |server: Option<Client>| {
        client.send(GET);
        let mut server = server.unwrap_or_else(|| upstream.accept());
        assert!(server.head().starts_with("GET / HTTP/1.1"));
        server.answer("ok");
        assert_eq!(client.response().body, b"ok");
        server
    };
    // This connection was made before the proxy knew that a request would come, and carries the request.
    let mut shown = ask(None);
    assert_eq!(shown.rest(), b"", "it is not kept");
    let shared = ask(None);
    let _still = ask(Some(shared));
    let port = client.stream.local_addr().unwrap().port();
    let shown = SocketAddr::from(([127, 30, 0, 2], port));
    steered.expect_asked(&[(1, Some(shown)), (1, None)]);
}

#[test]
fn nothing_is_kept_into_a_pod_that_is_none_any_more() {
    let (upstream, steered) = Steered::scripted(AppProtocol::Http, &["echo"]);
    let (_, address) = steered.outbound("shop", Some(SERVICE));
    let mut client = Client::connect(address);
    let mut ask = |n: usize| {
        client.send(GET);
        let server = upstream.asked();
        (n, server)
    };
    let answer = |server: &mut Client| {
        server.answer("ok");
    };
    let (_, mut first) = ask(1);
    answer(&mut first);
    steered.expect("heddle_upstream_connections_idle", &[], 1.0);
    // The workload moves to another pod, while the client's connection stays.
    steered.pods(&[("echo", 7)]);
    assert_eq!(first.rest(), b"", "it is closed");
    let (_, mut second) = ask(2);
    // A connection in use when its pod goes is not kept for later requests either.
    steered.pods(&[("echo", 8)]);
    let patience = Instant::now() + PATIENCE;
    loop {
        // The new pod is in effect when a listener opened afterwards serves.
        let mut probe = steered.dial("shop", SERVICE).sending(GET);
        let mut server = upstream.asked();
        answer(&mut server);
        probe.response();
        if steered.asked().last().is_some_and(|(pod, _)| *pod == 8) {
            break;
        }
        assert!(Instant::now() < patience);
    }
    answer(&mut second);
    assert_eq!(second.rest(), b"");
    let pods: Vec<u32> = steered.asked().into_iter().map(|(pod, _)| pod).collect();
    assert_eq!(pods[..2], [1, 7]);
}

#[test]
fn a_listener_of_a_released_pod_is_served_where_it_is() {
    let (upstream, outside) = (Upstream::at(ECHO), Upstream::at("127.30.0.100:0"));
    let mut mesh = mesh(upstream.address, AppProtocol::Tcp);
    let steered = Steered::new(&mesh, &["echo", "shop"]);
    let listen = |id: u64, entry: Entry, going: SocketAddr| {
        let socket = listener(Some(going));
        let address = socket.local_addr().unwrap();
        steered.proxy.listen_in(PodId(40), id, socket, entry);
        address
    };
    let (caller, workload) = (name("shop"), name("echo"));
    let dials = listen(100, Entry::Outbound { caller }, outside.address);
    let arrives = listen(101, Entry::Arriving { workload }, upstream.address);
    let mut expected = Vec::new();
    // The pod changes, then is gone, and then has another address.
    for round in 0..3 {
        if round == 1 {
            steered.pods(&[]);
        } else if round == 2 {
            mesh.generation += 1;
            mesh.workloads[0].address = [127, 30, 0, 10].into();
            mesh.services[0].ports[0].endpoints.clear();
            steered.apply(&mesh);
        }
        let _dialled = Client::connect(dials);
        let _at = outside.accept();
        let _arrived = Client::connect(arrives);
        let _at = upstream.accept();
        expected.extend([(40, None), (40, Some(SocketAddr::new(NODE, 0)))]);
        steered.expect_asked(&expected);
    }
}

/// A holder that answers requests for sockets only after it is told to begin.
fn slow_holder(channel: OwnedFd) -> SyncSender<()> {
    let (begin, begun) = sync_channel(1);
    std::thread::spawn(move || {
        let _the_test_may_have_ended = begun.recv();
        loop {
            let mut ready = [PollFd::new(&channel, PollFlags::IN)];
            poll(&mut ready, None).unwrap();
            let Ok(Some((ToHolder::Open { request, .. }, _))) = receive(&channel) else {
                return;
            };
            let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
            let made = socket_with(AddressFamily::INET, SocketType::STREAM, flags, None).unwrap();
            let error = None;
            let answer = ToProxy::Socket { request, error };
            while let Err(error) = send(&channel, &answer, &[made.as_fd()]) {
                assert_eq!(error.kind(), ErrorKind::WouldBlock);
                std::thread::yield_now();
            }
        }
    });
    begin
}

#[test]
fn a_crowd_waits_for_its_sockets() {
    const CROWD: usize = 100;
    let server = TcpListener::bind(ECHO).unwrap();
    // All clients connect to it at the same moment, when they get their sockets. A shorter backlog would drop
    // connections, with or without a proxy, and a retry takes seconds.
    rustix::net::listen(&server, 4096).unwrap();
    let mesh = mesh(server.local_addr().unwrap(), AppProtocol::Tcp);
    std::thread::spawn(move || {
        let mut open = Vec::new();
        for mut stream in server.incoming().flatten() {
            stream.write_all(b"hello").unwrap();
            open.push(stream);
        }
    });
    let (channel, proxys) = pair().unwrap();
    let begin = slow_holder(channel);
    let steered = Steered::over(proxys, 1, &mesh, &["echo"]);
    // More socket requests than may be pending at once.
    let mut clients = Vec::new();
    for _ in 0..9 {
        let (_, door) = steered.outbound("shop", Some(SERVICE));
        clients.extend((0..CROWD).map(|_| Client::connect(door)));
    }
    let connecting = clients.len() as f64;
    steered.expect("heddle_upstream_connections_active", &[], connecting);
    begin.send(()).unwrap();
    for client in &mut clients {
        assert_eq!(client.exact(5), b"hello");
    }
    steered.expect("heddle_tcp_connections_failed_total", &[], 0.0);
}
