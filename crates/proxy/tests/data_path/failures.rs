//! What goes wrong, who is told, and what it costs everybody else.

use std::io::{ErrorKind, Read, Write};
use std::net::{Shutdown, SocketAddr, TcpListener};
use std::time::Duration;

use crate::support::{Bed, Client, Upstream, count, field, mesh, serve};
use heddle_proxy::{Bounds, Settings, Timeouts};

const GET: &str = "GET / HTTP/1.1\r\nHost: echo\r\n\r\n";

/// An address at which nobody listens.
fn nobody() -> SocketAddr {
    TcpListener::bind("127.0.0.1:0")
        .unwrap()
        .local_addr()
        .unwrap()
}

fn quick(change: impl Fn(&mut Timeouts)) -> Settings {
    let mut settings = Settings::default();
    change(&mut settings.timeouts);
    settings
}

/// The status and reason that a client gets.
fn answer(client: &mut Client) -> (u16, String) {
    let response = client.response();
    (
        response.status(),
        response.field("heddle-reason").unwrap_or("").to_owned(),
    )
}

#[test]
fn a_service_without_endpoints_is_a_503_and_keeps_the_connection() {
    let (bed, log) = Bed::logged(Settings::default(), &mesh(&[], None));
    let mut client = bed.client();
    for _ in 0..2 {
        client.send(GET);
        assert_eq!(answer(&mut client), (503, "no_endpoint".into()));
        let line = log.line();
        assert!(line.contains(r#""upstream":null"#), "{line}");
        assert!(line.contains(r#""attempts":0"#), "nobody was tried: {line}");
    }
    bed.expect_metric("heddle_requests_rejected_total", &["no_endpoint"], 2.0);
}

#[test]
fn an_endpoint_that_refuses_is_passed_over_for_one_that_does_not() {
    let bed = Bed::new(&[nobody(), serve(|_| "here".into())]);
    let mut client = bed.client();
    for _ in 0..4 {
        client.send(GET);
        assert_eq!(client.response().body, b"here");
    }
    // After the first failure it is not asked again for a while.
    bed.expect_metric("heddle_upstream_connect_failures_total", &[], 1.0);
}

#[test]
fn endpoints_that_all_refuse_are_a_503() {
    let bed = Bed::new(&[nobody(), nobody()]);
    let mut client = bed.client();
    client.send(GET);
    assert_eq!(answer(&mut client), (503, "upstream_connect_failed".into()));
}

#[test]
fn a_request_on_a_stale_connection_is_sent_again() {
    let upstream = Upstream::new();
    let bed = Bed::new(&[upstream.address]);
    let mut client = bed.client();
    client.send(GET);
    let mut first = upstream.accept();
    first.head();
    first.send("HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n");
    client.response();
    // The endpoint closes as the next request is on its way: it reads the request and hangs up.
    client.send(GET);
    first.head();
    drop(first);
    let mut second = upstream.accept();
    second.head();
    second.send("HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nagain");
    assert_eq!(client.response().body, b"again");
    bed.expect_metric("heddle_upstream_retries_total", &[], 1.0);
}

#[test]
fn a_post_on_a_stale_connection_is_not_sent_again() {
    let upstream = Upstream::new();
    let bed = Bed::new(&[upstream.address]);
    let mut client = bed.client();
    client.send(GET);
    let mut first = upstream.accept();
    first.head();
    first.send("HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n");
    client.response();
    client.send("POST / HTTP/1.1\r\nHost: echo\r\nContent-Length: 0\r\n\r\n");
    first.head();
    drop(first);
    assert_eq!(answer(&mut client), (502, "upstream_reset".into()));
    assert!(upstream.is_quiet());
}

#[test]
fn a_pooled_connection_that_was_closed_is_not_used() {
    let upstream = Upstream::new();
    let bed = Bed::new(&[upstream.address]);
    let mut client = bed.client();
    client.send(GET);
    let mut first = upstream.accept();
    first.head();
    first.send("HTTP/1.1 200 OK\r\nContent-Length: 0\r\nConnection: close\r\n\r\n");
    client.response();
    drop(first);
    client.send("POST / HTTP/1.1\r\nHost: echo\r\nContent-Length: 0\r\n\r\n");
    let mut second = upstream.accept();
    second.head();
    second.send("HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n");
    assert_eq!(client.response().status(), 200);
}

#[test]
fn an_endpoint_that_talks_out_of_turn_is_not_believed() {
    let upstream = Upstream::new();
    let bed = Bed::new(&[upstream.address]);
    let mut client = bed.client();
    client.send(GET);
    let mut first = upstream.accept();
    first.head();
    // A second answer that nobody asked for must not become the next request's.
    first.send("HTTP/1.1 200 OK\r\nContent-Length: 1\r\n\r\naHTTP/1.1 200 OK\r\nContent-Length: 1\r\n\r\nb");
    assert_eq!(client.response().body, b"a");
    client.send(GET);
    let mut second = upstream.accept();
    second.head();
    second.send("HTTP/1.1 200 OK\r\nContent-Length: 1\r\n\r\nc");
    assert_eq!(client.response().body, b"c");
}

#[test]
fn malformed_answers_are_a_502() {
    for bad in [
        "nonsense\r\n\r\n",
        "HTTP/1.1 200 OK\r\nContent-Length: 1\r\nTransfer-Encoding: chunked\r\n\r\n",
        "HTTP/1.1 200 OK\nContent-Length: 0\n\n",
        "HTTP/1.1 200 OK\r\nContent-Length: 1\r\nContent-Length: 2\r\n\r\n",
        "HTTP/1.1 101 Switching Protocols\r\nUpgrade: x\r\n\r\n",
    ] {
        let upstream = Upstream::new();
        let bed = Bed::new(&[upstream.address]);
        let mut client = bed.client();
        client.send(GET);
        let mut server = upstream.accept();
        server.head();
        server.send(bad);
        assert_eq!(answer(&mut client).0, 502, "{bad:?}");
    }
}

#[test]
fn a_body_that_is_malformed_from_the_start_is_a_502() {
    for version in ["1.1", "1.0"] {
        let upstream = Upstream::new();
        let bed = Bed::new(&[upstream.address]);
        let mut client = bed.client();
        client.send(format!("GET / HTTP/{version}\r\nHost: echo\r\n\r\n"));
        let mut server = upstream.accept();
        server.head();
        server.send("HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nhelloXX");
        assert_eq!(answer(&mut client), (502, "chunk_data_end".into()));
        bed.expect_metric("heddle_http_requests_total", &["5xx"], 1.0);
    }
}

/// What a client sees of an answer whose end only the end of the connection shows, after `answer`
/// and then `ending`.
fn cut(request: &str, answer: &str, ending: impl FnOnce(Client)) -> (Vec<u8>, bool) {
    let upstream = Upstream::new();
    let bed = Bed::new(&[upstream.address]);
    let mut client = bed.client();
    client.send(request);
    let mut server = upstream.accept();
    server.head();
    server.send(answer);
    assert_eq!(field(&client.head(), "connection"), Some("close"));
    let mut seen = client.exact(4);
    ending(server);
    let end = client.stream.read_to_end(&mut seen);
    let reset = end.is_err_and(|error| error.kind() == ErrorKind::ConnectionReset);
    (seen, reset)
}

fn reset(server: Client) {
    rustix::net::sockopt::set_socket_linger(&server.stream, Some(Duration::ZERO)).unwrap();
    drop(server);
}

#[test]
fn an_answer_that_only_the_end_frames_is_reset_when_it_is_cut() {
    let until_close = "HTTP/1.1 200 OK\r\n\r\nhalf";
    assert_eq!(cut(GET, until_close, reset), (b"half".to_vec(), true));
    assert_eq!(cut(GET, until_close, drop), (b"half".to_vec(), false));

    let old = "GET / HTTP/1.0\r\nHost: echo\r\n\r\n";
    let chunked = "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n4\r\nhalf\r\n";
    let malformed = |mut server: Client| server.send("x");
    let whole = |mut server: Client| server.send("0\r\n\r\n");
    assert_eq!(cut(old, chunked, drop), (b"half".to_vec(), true));
    assert_eq!(cut(old, chunked, malformed), (b"half".to_vec(), true));
    assert_eq!(cut(old, chunked, whole), (b"half".to_vec(), false));
}

#[test]
fn a_flood_of_interim_answers_is_a_502() {
    let flood = "HTTP/1.1 103 Early Hints\r\n\r\n";
    let whole = "HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n";
    for (count, status) in [(100, 200), (101, 502)] {
        let upstream = Upstream::new();
        let bed = Bed::new(&[upstream.address]);
        let mut client = bed.client();
        client.send(GET);
        let mut server = upstream.accept();
        server.head();
        server.send(flood.repeat(count) + whole);
        for _ in 0..100 {
            assert_eq!(client.head(), flood);
        }
        assert_eq!(client.response().status(), status);
    }
}

#[test]
fn a_body_that_may_not_be_there_does_not_become_the_next_answer() {
    for odd in [
        "HTTP/1.1 204 No Content\r\nContent-Length: 1\r\n\r\n",
        "HTTP/1.1 204 No Content\r\nTransfer-Encoding: chunked\r\n\r\n",
        "HTTP/1.1 103 Early Hints\r\nContent-Length: 1\r\n\r\nHTTP/1.1 204 No Content\r\n\r\n",
    ] {
        let upstream = Upstream::new();
        let bed = Bed::new(&[upstream.address]);
        let mut client = bed.client();
        client.send(GET);
        let mut first = upstream.accept();
        first.head();
        first.send(odd);
        while !client.head().starts_with("HTTP/1.1 204 ") {}
        assert_eq!(first.rest(), b"", "the connection is not kept: {odd:?}");
    }
}

#[test]
fn requests_that_wait_for_nothing_are_answered_however_many_come_at_once() {
    const MANY: usize = 5_000;
    let bed = Bed::new(&[]);
    let mut client = bed.client();
    let mut sender = client.stream.try_clone().unwrap();
    let sent = std::thread::spawn(move || sender.write_all(GET.repeat(MANY).as_bytes()));
    for _ in 0..MANY {
        assert_eq!(answer(&mut client), (503, "no_endpoint".into()));
    }
    sent.join().unwrap().unwrap();
}

#[test]
fn an_answer_that_breaks_off_ends_the_connection() {
    let upstream = Upstream::new();
    let bed = Bed::new(&[upstream.address]);
    let mut client = bed.client();
    client.send(GET);
    let mut server = upstream.accept();
    server.head();
    server.send("HTTP/1.1 200 OK\r\nContent-Length: 10\r\n\r\nhalf");
    client.head();
    drop(server);
    assert_eq!(client.rest(), b"half");
    bed.expect_metric(
        "heddle_requests_rejected_total",
        &["upstream_truncated"],
        1.0,
    );
}

#[test]
fn a_malformed_request_is_refused_with_its_reason_and_closed() {
    let upstream = Upstream::new();
    let bed = Bed::new(&[upstream.address]);
    let mut client = bed.client();
    client.send(
        "GET / HTTP/1.1\r\nHost: echo\r\nContent-Length: 1\r\nTransfer-Encoding: chunked\r\n\r\n",
    );
    assert_eq!(
        answer(&mut client),
        (400, "content_length_with_transfer_encoding".into())
    );
    assert_eq!(client.rest(), b"");
    assert!(upstream.is_quiet());
}

#[test]
fn what_is_not_built_is_refused_with_a_reason() {
    let bed = Bed::new(&[serve(|_| String::new())]);
    let mut client = bed.client();
    client.send("CONNECT echo:80 HTTP/1.1\r\nHost: echo:80\r\n\r\n");
    assert_eq!(answer(&mut client), (501, "connect_not_supported".into()));
}

#[test]
fn a_port_of_another_protocol_is_refused_with_a_reason() {
    let mut mesh = mesh(&[], None);
    mesh.services[0].ports[0].protocol = heddle_model::AppProtocol::Grpc;
    let bed = Bed::with(Settings::default(), &mesh);
    let mut client = bed.client();
    client.send(GET);
    assert_eq!(answer(&mut client), (501, "protocol_not_supported".into()));
}

#[test]
fn a_head_that_does_not_end_in_time_is_a_408() {
    let settings = quick(|timeouts| timeouts.request_head = Duration::from_millis(50));
    let bed = Bed::with(settings, &mesh(&[], None));
    let mut client = bed.client();
    client.send("GET / HTTP/1.1\r\nHost:");
    assert_eq!(answer(&mut client), (408, "request_head_timeout".into()));
    assert_eq!(client.rest(), b"");
}

#[test]
fn an_idle_connection_is_closed_in_silence() {
    let settings = quick(|timeouts| timeouts.client_idle = Duration::from_millis(50));
    let bed = Bed::with(settings, &mesh(&[], None));
    assert_eq!(bed.client().rest(), b"");
}

#[test]
fn an_endpoint_that_does_not_answer_in_time_is_a_504() {
    let settings = quick(|timeouts| timeouts.response_head = Duration::from_millis(50));
    let upstream = Upstream::new();
    let bed = Bed::with(settings, &mesh(&[upstream.address], None));
    let mut client = bed.client();
    client.send(GET);
    let _server = upstream.accept();
    assert_eq!(
        answer(&mut client),
        (504, "upstream_response_timeout".into())
    );
}

#[test]
fn an_answer_that_stops_arriving_is_cut() {
    let settings = quick(|timeouts| timeouts.stream_idle = Duration::from_millis(50));
    let upstream = Upstream::new();
    let bed = Bed::with(settings, &mesh(&[upstream.address], None));
    let mut client = bed.client();
    client.send(GET);
    let mut server = upstream.accept();
    server.head();
    server.send("HTTP/1.1 200 OK\r\nContent-Length: 10\r\n\r\nhalf");
    client.head();
    assert_eq!(client.rest(), b"half");
    bed.expect_metric(
        "heddle_requests_rejected_total",
        &["stream_idle_timeout"],
        1.0,
    );
}

/// Sends until nobody has taken anything for a while.
fn flood(stream: &mut std::net::TcpStream) {
    stream.set_nonblocking(true).unwrap();
    let block = vec![0u8; 65536];
    let mut stuck = 0;
    while stuck < 20 {
        match stream.write(&block) {
            Ok(_) => stuck = 0,
            Err(error) if error.kind() == std::io::ErrorKind::WouldBlock => {
                stuck += 1;
                std::thread::park_timeout(Duration::from_millis(1));
            }
            // It was cut already.
            Err(_) => return,
        }
    }
}

#[test]
fn a_client_that_does_not_read_is_to_blame_for_the_answers_end() {
    let settings = quick(|timeouts| timeouts.stream_idle = Duration::from_millis(500));
    let upstream = Upstream::new();
    let (bed, log) = Bed::logged(settings, &mesh(&[upstream.address], None));
    let mut client = bed.client();
    client.send(GET);
    let mut server = upstream.accept();
    server.head();
    server.send("HTTP/1.1 200 OK\r\nContent-Length: 1000000000\r\n\r\n");
    client.head();
    flood(&mut server.stream);
    bed.expect_metric("heddle_requests_rejected_total", &["client_stalled"], 1.0);
    let line = log.line();
    assert!(
        line.contains(r#""status":200,"reason":"client_stalled","blame":"downstream""#),
        "{line}"
    );
}

#[test]
fn an_endpoint_that_does_not_read_is_to_blame_for_the_requests_end() {
    let settings = quick(|timeouts| timeouts.stream_idle = Duration::from_millis(500));
    let upstream = Upstream::new();
    let (bed, log) = Bed::logged(settings, &mesh(&[upstream.address], None));
    let mut client = bed.client();
    client.send("POST / HTTP/1.1\r\nHost: echo\r\nContent-Length: 1000000000\r\n\r\n");
    let mut server = upstream.accept();
    server.head();
    flood(&mut client.stream);
    bed.expect_metric("heddle_requests_rejected_total", &["upstream_stalled"], 1.0);
    let line = log.line();
    assert!(
        line.contains(r#""status":504,"reason":"upstream_stalled","blame":"upstream""#),
        "{line}"
    );
}

#[test]
fn a_client_that_stops_sending_is_to_blame_for_the_requests_end() {
    let settings = quick(|timeouts| timeouts.stream_idle = Duration::from_millis(50));
    let upstream = Upstream::new();
    let bed = Bed::with(settings, &mesh(&[upstream.address], None));
    let mut client = bed.client();
    client.send("POST / HTTP/1.1\r\nHost: echo\r\nContent-Length: 10\r\n\r\nhalf");
    let mut server = upstream.accept();
    server.head();
    server.exact(4);
    assert_eq!(answer(&mut client), (408, "request_body_timeout".into()));
}

/// A proxy with two blocks, one of them held by a client whose head does not end; a client with an
/// answered request behind it; and the endpoint's connection, which waits in the pool.
fn one_block_left(upstream: &Upstream) -> (Bed, Client, Client, Client) {
    let mut settings = Settings::default();
    settings.bounds.blocks = 2;
    let bed = Bed::with(settings, &mesh(&[upstream.address], None));
    let mut client = bed.client();
    client.send(GET);
    let mut server = upstream.accept();
    server.head();
    server.send("HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n");
    client.response();
    // What the first request held is given back, and then it is the holder's block that is seen.
    bed.expect_metric("heddle_buffer_blocks_active", &[], 0.0);
    let mut holder = bed.client();
    holder.send("GET / HTTP/1.1\r\n");
    bed.expect_metric("heddle_buffer_blocks_active", &[], 1.0);
    (bed, holder, client, server)
}

#[test]
fn no_buffer_for_an_answer_is_our_own_fault() {
    let upstream = Upstream::new();
    let (bed, _holder, mut client, mut server) = one_block_left(&upstream);
    client.send(GET);
    server.head();
    server.send("HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n");
    assert_eq!(answer(&mut client), (503, "buffers_exhausted".into()));
    bed.expect_metric(
        "heddle_requests_rejected_total",
        &["buffers_exhausted"],
        1.0,
    );
}

#[test]
fn no_buffer_for_what_a_client_sends_early_is_our_own_fault() {
    let upstream = Upstream::new();
    let (_bed, _holder, mut client, mut server) = one_block_left(&upstream);
    client.send([GET.as_bytes(), &[b'x'; 10_000]].concat());
    server.head();
    assert_eq!(answer(&mut client), (503, "buffers_exhausted".into()));
}

#[test]
fn a_client_that_resets_takes_its_request_with_it() {
    let upstream = Upstream::new();
    let bed = Bed::new(&[upstream.address]);
    let mut client = bed.client();
    client.send(GET);
    let mut server = upstream.accept();
    server.head();
    rustix::net::sockopt::set_socket_linger(&client.stream, Some(Duration::ZERO)).unwrap();
    drop(client);
    assert_eq!(server.rest(), b"", "the endpoint sees the connection close");
    bed.expect_metric("heddle_requests_rejected_total", &["client_gone"], 1.0);
}

#[test]
fn a_client_that_has_said_everything_gets_its_answers() {
    let upstream = Upstream::new();
    let bed = Bed::new(&[upstream.address]);
    let mut client = bed.client();
    client.send(format!("{GET}{GET}"));
    client.stream.shutdown(Shutdown::Write).unwrap();
    let mut server = upstream.accept();
    for answer in ["one", "two"] {
        server.head();
        server.send(format!(
            "HTTP/1.1 200 OK\r\nContent-Length: 3\r\n\r\n{answer}"
        ));
        assert_eq!(client.response().body, answer.as_bytes());
    }
    assert_eq!(
        client.rest(),
        b"",
        "the connection is closed after the last"
    );
}

#[test]
fn a_client_that_ends_in_the_middle_of_a_body_is_gone() {
    let upstream = Upstream::new();
    let bed = Bed::new(&[upstream.address]);
    let mut client = bed.client();
    client.send("POST / HTTP/1.1\r\nHost: echo\r\nContent-Length: 9\r\n\r\nhalf");
    let mut server = upstream.accept();
    server.head();
    client.stream.shutdown(Shutdown::Write).unwrap();
    assert_eq!(server.rest(), b"half");
    assert_eq!(client.rest(), b"");
    bed.expect_metric("heddle_requests_rejected_total", &["client_gone"], 1.0);
}

#[test]
fn a_client_that_has_gone_is_noticed_by_writing_to_it() {
    let upstream = Upstream::new();
    let bed = Bed::new(&[upstream.address]);
    let mut client = bed.client();
    client.send(GET);
    let mut server = upstream.accept();
    server.head();
    drop(client);
    server.send("HTTP/1.1 200 OK\r\nContent-Length: 1000000000\r\n\r\n");
    // More than fits into all buffers on the way: it ends because the client is not there.
    let block = vec![0u8; 65536];
    while server.stream.write_all(&block).is_ok() {}
    bed.expect_metric("heddle_requests_rejected_total", &["client_gone"], 1.0);
    bed.expect_metric("heddle_connections_active", &[], 0.0);
}

#[test]
fn one_connection_too_many_is_closed_and_counted() {
    let settings = Settings {
        bounds: Bounds {
            connections: 1,
            ..Bounds::default()
        },
        ..Settings::default()
    };
    let bed = Bed::with(settings, &mesh(&[serve(|_| String::new())], None));
    let mut first = bed.client();
    first.send(GET);
    assert_eq!(first.response().status(), 200);
    assert_eq!(bed.client().rest(), b"");
    bed.expect_metric("heddle_connections_refused_total", &[], 1.0);
}

#[test]
fn an_endpoint_gets_no_more_connections_than_it_may_have() {
    let settings = Settings {
        bounds: Bounds {
            connections_per_endpoint: 2,
            ..Bounds::default()
        },
        ..Settings::default()
    };
    let upstream = Upstream::new();
    let bed = Bed::with(settings, &mesh(&[upstream.address], None));
    let mut clients: Vec<Client> = (0..5).map(|_| bed.client()).collect();
    clients.iter_mut().for_each(|client| client.send(GET));
    let mut servers = [upstream.accept(), upstream.accept()];
    bed.expect_metric(
        "heddle_requests_rejected_total",
        &["upstream_overflow"],
        3.0,
    );
    for server in &mut servers {
        server.head();
        server.send("HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n");
    }
    let mut statuses: Vec<u16> = clients
        .iter_mut()
        .map(|client| client.response().status())
        .collect();
    statuses.sort_unstable();
    assert_eq!(statuses, [200, 200, 503, 503, 503]);
    assert!(upstream.is_quiet());
}

#[test]
fn a_slow_reader_stops_the_sender_and_memory_stays_bounded() {
    let upstream = Upstream::new();
    let bed = Bed::new(&[upstream.address]);
    let mut client = bed.client();
    client.send(GET);
    let mut server = upstream.accept();
    server.head();
    server.send("HTTP/1.1 200 OK\r\nContent-Length: 1000000000\r\n\r\n");
    client.head();
    // Nobody reads: the sender must come to a stop long before a gigabyte.
    server.stream.set_nonblocking(true).unwrap();
    let (mut sent, mut stuck) = (0usize, 0);
    let block = vec![0u8; 65536];
    while stuck < 200 && sent < 500_000_000 {
        match server.stream.write(&block) {
            Ok(n) => (sent, stuck) = (sent + n, 0),
            Err(_) => {
                stuck += 1;
                std::thread::yield_now();
                std::thread::park_timeout(Duration::from_millis(1));
            }
        }
    }
    assert!(
        sent < 100_000_000,
        "{sent} bytes were taken for a client that reads nothing"
    );
}

#[tokio::test]
async fn draining_finishes_what_has_begun_and_ends() {
    let upstream = Upstream::new();
    let bed = Bed::new(&[upstream.address]);
    let (mut busy, mut idle) = (bed.client(), bed.client());
    idle.send("GET / HTTP/1.1\r\nHost: echo\r\n\r\n");
    let mut server = upstream.accept();
    server.head();
    server.send("HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n");
    idle.response();
    busy.send(GET);
    server.head();
    let drained = tokio::spawn(bed.proxy.drain(Duration::from_secs(10)));
    assert_eq!(
        tokio::task::spawn_blocking(move || idle.rest())
            .await
            .unwrap(),
        b""
    );
    server.send("HTTP/1.1 200 OK\r\nContent-Length: 4\r\n\r\ndone");
    let response = tokio::task::spawn_blocking(move || busy.response())
        .await
        .unwrap();
    assert_eq!(response.body, b"done");
    assert_eq!(response.field("connection"), Some("close"));
    assert_eq!(drained.await.unwrap().cut, 0);
}

#[tokio::test]
async fn draining_cuts_what_does_not_end_and_says_so() {
    let upstream = Upstream::new();
    let (bed, log) = Bed::logged(Settings::default(), &mesh(&[upstream.address], None));
    // One has no answer yet, one has half of it, and one has not sent all of its head.
    let mut waiting = bed.client();
    waiting.send(GET);
    let mut server = upstream.accept();
    server.head();
    let mut begun = bed.client();
    begun.send(GET);
    let mut second = upstream.accept();
    second.head();
    second.send("HTTP/1.1 200 OK\r\nContent-Length: 10\r\n\r\nhalf");
    begun.head();
    let mut partial = bed.client();
    partial.send("GET / HTTP/1.1\r\n");
    bed.expect_metric("heddle_connections_active", &[], 3.0);
    let registry = bed.registry.clone();
    let drained = bed.proxy.drain(Duration::from_millis(50)).await;
    assert_eq!(drained.cut, 3);
    assert_eq!(
        count(&registry, "heddle_requests_rejected_total", &["draining"]),
        3.0
    );
    assert_eq!(count(&registry, "heddle_requests_active", &[]), 0.0);
    let mut lines = [log.line(), log.line(), log.line()];
    lines.sort_by_key(|line| !line.contains(r#""status":200"#));
    assert!(
        lines[0].contains(r#""status":200,"reason":"draining","blame":"heddle""#),
        "{lines:?}"
    );
    for line in &lines[1..] {
        assert!(
            line.contains(r#""status":503,"reason":"draining","blame":"heddle""#),
            "{line}"
        );
    }
    assert_eq!(begun.rest(), b"half");
    assert_eq!(answer(&mut waiting), (503, "draining".into()));
}
