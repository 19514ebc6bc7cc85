use crate::service::OneMethod;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};

use super::*;

#[tokio::test(start_paused = true)]
async fn no_connection_outlives_its_certificate() {
    let control = Control::start();
    let client = control.node("n1").await;
    let mut watch = client.watch_trust(0, 0).await.unwrap();
    watch.next().await.unwrap();
    let begun = tokio::time::Instant::now();
    assert!(watch.next().await.unwrap_err().is_transient());
    let lived = begun.elapsed().as_secs();
    assert!((DAY - 1..DAY + 60).contains(&lived), "{lived}");
}

/// A server for connections over TCP.
fn over_tcp(control: &Control, bounds: ServeBounds) -> ControlServer {
    let clock: Clock = Arc::new(|| at(NOW));
    let authority = Arc::clone(&control.authority);
    let (board, nodes) = (control.board.clone(), control.nodes.clone());
    ControlServer::new(authority, board, nodes, clock, bounds)
}

#[tokio::test]
async fn a_method_of_discovery_that_is_not_there_is_said_to_be_so() {
    let control = Control::start();
    let server = over_tcp(&control, ServeBounds::default());
    let mut service = OneMethod::<crate::discovery::Discovery>::new(&server.shared);
    let request = http::Request::post("/heddle.v1.Discovery/Other");
    let request = request.body(tonic::body::Body::empty()).unwrap();
    let response = tonic::codegen::Service::call(&mut service, request).await;
    let response = response.unwrap();
    assert_eq!(response.status(), http::StatusCode::OK);
    assert_eq!(response.headers()["grpc-status"], "12", "unimplemented");
}

#[tokio::test]
async fn an_expired_certificate_gets_nothing() {
    let control = Control::start();
    let client = control.node("n1").await;
    control.time.fetch_add(DAY, Relaxed);
    let why = refused(client.issue(&node_id("n1"), &request()).await);
    assert!(why.contains("expired"), "{why}");
    assert!(refused(client.watch_trust(0, 0).await).contains("expired"));
    assert!(refused(discover(&client, &own("n1")).await).contains("expired"));
}

#[tokio::test(start_paused = true)]
async fn strangers_are_few_and_do_not_stay() {
    let bounds = ServeBounds {
        unidentified: 2,
        ..ServeBounds::default()
    };
    let control = Control::with(bounds);
    let mut first = control.pipe(None, "192.0.2.1").await;
    let mut second = control.pipe(None, "192.0.2.1").await;
    let begun = tokio::time::Instant::now();
    let mut bytes = Vec::new();
    // The oldest is closed for a new connection, which is served at once.
    let third = control.stranger("192.0.2.2").await;
    let _ = first.read_to_end(&mut bytes).await;
    assert_eq!(begun.elapsed().as_secs(), 0);
    assert_eq!(control.counters.unidentified_refused.load(Relaxed), 1);
    let token = control.token("n2");
    assert!(join(&third, &token, "n2").await.is_ok());
    // Nodes do not count towards this limit.
    let node = control.node("n1").await;
    assert!(node.watch_trust(0, 0).await.is_ok());

    let _ = second.read_to_end(&mut bytes).await;
    let lived = begun.elapsed();
    assert!(lived >= bounds.unidentified_life - Duration::from_secs(1));
    assert!(lived <= bounds.unidentified_life + Duration::from_secs(1));
}

#[tokio::test]
async fn what_is_no_http2_is_closed() {
    let control = Control::start();
    let mut pipe = control.pipe(None, "192.0.2.1").await;
    pipe.write_all(b"GET / HTTP/1.1\r\nhost: control\r\n\r\n")
        .await
        .unwrap();
    let mut bytes = Vec::new();
    let _ = pipe.read_to_end(&mut bytes).await;
    assert!(!bytes.starts_with(b"HTTP/1.1 200"));
}

#[tokio::test(start_paused = true)]
async fn when_the_server_ends_its_calls_do() {
    let control = Control::start();
    let client = control.node("n1").await;
    let mut watch = discover(&client, &own("n1")).await.unwrap();
    watch.next().await.unwrap();
    control.stop.send(()).unwrap();
    let ended = watch.next().await.unwrap_err();
    assert!(ended.is_transient(), "{ended}");
    drop((watch, client));
    control.served.await.unwrap().unwrap();
}

/// The listener and the handshake over real sockets. The first line that a client sends is its identity.
#[tokio::test]
async fn connections_are_accepted_authenticated_and_served() {
    let control = Control::start();
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    let handshake = |mut stream: TcpStream, address| async move {
        let mut line = Vec::new();
        loop {
            match stream.read_u8().await? {
                b'\n' => break,
                byte => line.push(byte),
            }
        }
        let certificate = match line.as_slice() {
            b"bad" => return Err(io::ErrorKind::InvalidData.into()),
            b"" => None,
            name => Some(PeerCertificate {
                id: node_id(std::str::from_utf8(name).unwrap()),
                serial: None,
                not_after: NOW + DAY,
            }),
        };
        let peer = Peer {
            address: Some(address),
            certificate,
        };
        Ok((stream, peer))
    };
    let bounds = ServeBounds {
        handshakes: 1,
        ..ServeBounds::default()
    };
    let server = over_tcp(&control, bounds);
    let counters = server.counters();
    let (stop, stopped) = oneshot::channel::<()>();
    let served = tokio::spawn(server.serve(listener, handshake, async {
        let _ = stopped.await;
    }));
    let connect = async |line: &'static str| {
        let mut stream = TcpStream::connect(address).await.unwrap();
        stream.write_all(line.as_bytes()).await.unwrap();
        stream
    };

    // Silent clients do not lock out others, although the limit is one handshake.
    let mut silent = Vec::new();
    for _ in 0..3 {
        silent.push(connect("").await);
    }
    let mut bad = connect("bad\n").await;
    assert_eq!(bad.read(&mut [0; 1]).await.unwrap_or(0), 0);
    for mut silent in silent {
        assert_eq!(silent.read(&mut [0; 1]).await.unwrap_or(0), 0);
    }
    assert_eq!(counters.handshakes_failed.load(Relaxed), 4);
    let node = Client::over(connect("n1\n").await).await.unwrap();
    let mut watch = discover(&node, &own("n1")).await.unwrap();
    assert_eq!(watch.next().await.unwrap().0, control.board.epoch());
    let stranger = Client::over(connect("\n").await).await.unwrap();
    let token = control.token("n2");
    assert!(join(&stranger, &token, "n2").await.is_ok());

    drop(stop);
    assert!(watch.next().await.is_err());
    drop((node, watch, stranger));
    served.await.unwrap().unwrap();
}

#[tokio::test]
async fn a_connection_that_waits_for_a_place_is_counted_and_served_when_there_is_one() {
    let control = Control::start();
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    let handshake = |stream: TcpStream, address| async move {
        let peer = Peer {
            address: Some(address),
            certificate: Some(PeerCertificate {
                id: node_id("n1"),
                serial: None,
                not_after: NOW + DAY,
            }),
        };
        Ok((stream, peer))
    };
    let bounds = ServeBounds {
        connections: 1,
        ..ServeBounds::default()
    };
    let server = over_tcp(&control, bounds);
    let counters = server.counters();
    let (stop, stopped) = oneshot::channel::<()>();
    let served = tokio::spawn(server.serve(listener, handshake, async {
        let _ = stopped.await;
    }));
    let connect =
        move || async move { Client::over(TcpStream::connect(address).await.unwrap()).await };

    let first = connect().await.unwrap();
    let mut watch = discover(&first, &own("n1")).await.unwrap();
    watch.next().await.unwrap();
    assert_eq!(counters.connections_waited.load(Relaxed), 0);
    let second = tokio::spawn(connect());
    while counters.connections_waited.load(Relaxed) == 0 {
        tokio::task::yield_now().await;
    }
    assert_eq!(counters.connections.load(Relaxed), 1);
    drop((watch, first));
    let second = second.await.unwrap().unwrap();
    let mut watch = discover(&second, &own("n1")).await.unwrap();
    watch.next().await.unwrap();
    assert_eq!(counters.connections.load(Relaxed), 2);
    assert_eq!(counters.connections_waited.load(Relaxed), 1);

    drop((watch, second, stop));
    served.await.unwrap().unwrap();
}

#[tokio::test(start_paused = true)]
async fn a_connection_that_has_ended_is_not_made_again_behind_the_callers_back() {
    let control = Control::start();
    let (ours, theirs) = tokio::io::duplex(1_024);
    drop(theirs);
    let client = Client::over(ours).await;
    if let Ok(client) = client {
        let failed = client.issue(&node_id("n1"), &request()).await.unwrap_err();
        assert!(failed.is_transient(), "{failed}");
    }
    drop(control);
}

/// A connection ends when the root that signed the peer's certificate is removed, long before the certificate
/// expires.
#[tokio::test(start_paused = true)]
async fn connections_end_when_a_root_goes() {
    let control = Control::start();
    let (first, stranger) = (
        control.node("n1").await,
        control.stranger("192.0.2.1").await,
    );
    let token = control.token("n1");
    let begun = control.authority.begin_rotation(&NextRoot::Make, at(NOW));
    begun.unwrap();
    control
        .authority
        .switch_rotation(&[], true, at(NOW))
        .unwrap();
    // A root was only added: no connection has to end.
    tokio::time::sleep(Duration::from_secs(30)).await;
    first.issue(&node_id("n1"), &request()).await.unwrap();
    let _still_there = join(&stranger, &token, "n1").await;

    control
        .authority
        .finish_rotation(&[], true, at(NOW))
        .unwrap();
    tokio::time::sleep(Duration::from_secs(6)).await;
    let gone = first.issue(&node_id("n1"), &request()).await.unwrap_err();
    assert!(matches!(gone, ClientError::Unavailable(_)), "{gone}");
    let back = control.node("n1").await;
    back.issue(&node_id("n1"), &request()).await.unwrap();
}

/// The certificate of a node.
fn certificate(name: &str) -> PeerCertificate {
    PeerCertificate {
        id: node_id(name),
        serial: None,
        not_after: NOW + DAY,
    }
}

#[tokio::test(start_paused = true)]
async fn a_node_has_a_few_connections_and_takes_none_of_another() {
    let control = Control::start();
    let other = control.node("n2").await;
    let mut other = other.watch_trust(0, 0).await.unwrap();
    other.next().await.unwrap();
    // The oldest has a call, so the second one ends when there is one too many.
    let busy = control.node("n1").await;
    let mut call = discover(&busy, &own("n1")).await.unwrap();
    call.next().await.unwrap();
    let mut idle = Vec::new();
    for _ in 0..16 {
        idle.push(control.pipe(Some(certificate("n1")), "192.0.2.1").await);
    }
    let mut bytes = Vec::new();
    let _ = idle[0].read_to_end(&mut bytes).await;
    let open = tokio::time::timeout(Duration::from_secs(5), idle[1].read_to_end(&mut bytes));
    assert!(open.await.is_err());
    control.board.put(services(1));
    call.next().await.unwrap();
    let open = tokio::time::timeout(Duration::from_secs(5), other.next());
    assert!(open.await.is_err());
}

/// What a node was sent and does not read is not kept for longer than its call.
#[tokio::test(start_paused = true)]
async fn the_connection_of_a_node_that_does_not_read_ends() {
    let control = Control::start();
    let pipe = control.pipe(Some(certificate("n1")), "192.0.2.1").await;
    let mut client = h2::client::Builder::new();
    let client = client.initial_window_size(0);
    let (client, connection) = client.handshake::<_, bytes::Bytes>(pipe).await.unwrap();
    let connection = tokio::spawn(connection);
    let request = http::Request::post("http://control.heddle/heddle.v1.Discovery/Stream");
    let request = request.header("content-type", "application/grpc");
    let request = request.body(()).unwrap();
    let (response, mut body) = client
        .ready()
        .await
        .unwrap()
        .send_request(request, false)
        .unwrap();
    let first = heddle_xds::proto::DiscoveryRequest {
        node: Some(heddle_xds::proto::Registration {
            node_name: "n1".to_owned(),
            mesh_address: "192.0.2.7:15008".to_owned(),
            ..Default::default()
        }),
        type_url: heddle_xds::resources::Type::Service.type_url().to_owned(),
        subscribe: vec!["*".to_owned()],
        ..Default::default()
    };
    let message = prost::Message::encode_to_vec(&first);
    let mut frame = vec![0];
    frame.extend(u32::try_from(message.len()).unwrap().to_be_bytes());
    frame.extend(message);
    body.send_data(frame.into(), false).unwrap();
    let response = response.await.unwrap();
    assert_eq!(response.headers().get("grpc-status"), None, "{response:?}");
    let begun = tokio::time::Instant::now();
    let _ = connection.await.unwrap();
    let lasted = begun.elapsed().as_secs();
    assert!((60..=65).contains(&lasted), "{lasted}");
    drop((response, body));
}
