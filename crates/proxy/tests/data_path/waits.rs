//! Timeouts, exceeded limits, and clients that disconnect: which response they cause, and which side the log blames.

use std::io::Write;
use std::net::Shutdown;
use std::time::Duration;

use heddle_model::AppProtocol;
use heddle_proxy::Settings;

use crate::support::{
    Bed, Client, GET, Upstream, bounded, count, mesh, post, quick, serve, speaking, taking_none,
};

#[test]
fn a_head_that_does_not_end_in_time_is_a_408() {
    let settings = quick(|timeouts| timeouts.request_head = Duration::from_millis(50));
    let bed = Bed::with(settings, &mesh(&[], None));
    let mut client = bed.sending("GET / HTTP/1.1\r\nHost:");
    assert_eq!(client.response().verdict(), (408, "request_head_timeout"));
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
    let (upstream, bed) = Bed::scripted_with(settings);
    let mut client = bed.sending(GET);
    let _server = upstream.accept();
    assert_eq!(
        client.response().verdict(),
        (504, "upstream_response_timeout")
    );
}

#[test]
fn an_endpoint_that_takes_no_connection_in_time_is_a_504() {
    let (address, _held) = taking_none();
    let settings = || quick(|timeouts| timeouts.connect = Duration::from_millis(100));
    let reason = "upstream_connect_timeout";
    let logged = [
        format!(r#""reason":"{reason}","blame":"upstream""#),
        r#""attempts":3"#.to_owned(),
    ];
    let logged = logged.each_ref().map(String::as_str);
    let (bed, log) = Bed::logged(settings(), &mesh(&[address], None));
    assert_eq!(bed.ask(GET).verdict(), (504, reason));
    log.expect(&logged);

    let (bed, log) = Bed::logged(settings(), &speaking(AppProtocol::Tcp, &[address]));
    bed.client().expect_reset();
    log.expect(&logged);
    bed.expect_rejected(reason, 1.0);
}

#[test]
fn an_answer_that_stops_arriving_is_cut() {
    let settings = quick(|timeouts| timeouts.stream_idle = Duration::from_millis(50));
    let (upstream, bed) = Bed::scripted_with(settings);
    let mut client = bed.sending(GET);
    let _server = upstream.replying("HTTP/1.1 200 OK\r\nContent-Length: 10\r\n\r\nhalf");
    client.head();
    assert_eq!(client.rest(), b"half");
    bed.expect_rejected("stream_idle_timeout", 1.0);
}

/// Sends until the peer has accepted nothing for a while.
pub(crate) fn flood(stream: &mut std::net::TcpStream) {
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
            // The connection was already reset.
            Err(_) => return,
        }
    }
}

#[test]
fn a_client_that_does_not_read_is_to_blame_for_the_answers_end() {
    let settings = quick(|timeouts| timeouts.stream_idle = Duration::from_millis(500));
    let (upstream, bed, log) = Bed::scripted_logged(settings);
    let mut client = bed.sending(GET);
    let mut server = upstream.replying("HTTP/1.1 200 OK\r\nContent-Length: 1000000000\r\n\r\n");
    client.head();
    flood(&mut server.stream);
    bed.expect_rejected("client_stalled", 1.0);
    log.expect(&[r#""status":200,"reason":"client_stalled","blame":"downstream""#]);
}

#[test]
fn an_endpoint_that_does_not_read_is_to_blame_for_the_requests_end() {
    let settings = quick(|timeouts| timeouts.stream_idle = Duration::from_millis(500));
    let (upstream, bed, log) = Bed::scripted_logged(settings);
    let mut client = bed.sending(post(1_000_000_000));
    let _server = upstream.asked();
    flood(&mut client.stream);
    bed.expect_rejected("upstream_stalled", 1.0);
    log.expect(&[r#""status":504,"reason":"upstream_stalled","blame":"upstream""#]);
}

#[test]
fn a_client_that_stops_sending_is_to_blame_for_the_requests_end() {
    let settings = quick(|timeouts| timeouts.stream_idle = Duration::from_millis(50));
    let (upstream, bed) = Bed::scripted_with(settings);
    let mut client = bed.sending(post(10) + "half");
    let mut server = upstream.asked();
    server.exact(4);
    assert_eq!(client.response().verdict(), (408, "request_body_timeout"));
}

/// A proxy with two blocks, one of them held by a client with an incomplete request head; a client with an answered
/// request; and the endpoint's connection, which is idle in the pool.
fn one_block_left(upstream: &Upstream) -> (Bed, Client, Client, Client) {
    let settings = bounded(|bounds| bounds.blocks = 2);
    let bed = Bed::with(settings, &mesh(&[upstream.address], None));
    let mut client = bed.sending(GET);
    let server = upstream.answering("");
    client.response();
    // Waits until the first request's block is free, so that the next block counted is the holder's.
    bed.expect("heddle_buffer_blocks_active", &[], 0.0);
    let holder = bed.sending("GET / HTTP/1.1\r\n");
    bed.expect("heddle_buffer_blocks_active", &[], 1.0);
    (bed, holder, client, server)
}

#[test]
fn no_buffer_for_an_answer_is_our_own_fault() {
    let upstream = Upstream::new();
    let (bed, _holder, mut client, mut server) = one_block_left(&upstream);
    client.send(GET);
    server.head();
    server.answer("");
    assert_eq!(client.response().verdict(), (503, "buffers_exhausted"));
    bed.expect_rejected("buffers_exhausted", 1.0);
}

#[test]
fn no_buffer_for_what_a_client_sends_early_is_our_own_fault() {
    let upstream = Upstream::new();
    let (_bed, _holder, mut client, mut server) = one_block_left(&upstream);
    client.send([GET.as_bytes(), &[b'x'; 10_000]].concat());
    server.head();
    assert_eq!(client.response().verdict(), (503, "buffers_exhausted"));
}

#[test]
fn a_client_that_resets_takes_its_request_with_it() {
    let (upstream, bed) = Bed::scripted();
    let client = bed.sending(GET);
    let mut server = upstream.asked();
    client.reset();
    assert_eq!(server.rest(), b"", "the endpoint sees the connection close");
    bed.expect_rejected("client_gone", 1.0);
}

#[test]
fn a_client_that_has_said_everything_gets_its_answers() {
    let (upstream, bed) = Bed::scripted();
    let mut client = bed.sending(format!("{GET}{GET}"));
    client.stream.shutdown(Shutdown::Write).unwrap();
    let mut server = upstream.accept();
    for answer in ["one", "two"] {
        server.head();
        server.answer(answer);
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
    let (upstream, bed) = Bed::scripted();
    let mut client = bed.sending(post(9) + "half");
    let mut server = upstream.asked();
    client.stream.shutdown(Shutdown::Write).unwrap();
    assert_eq!(server.rest(), b"half");
    assert_eq!(client.rest(), b"");
    bed.expect_rejected("client_gone", 1.0);
}

#[test]
fn a_client_that_has_gone_is_noticed_by_writing_to_it() {
    let (upstream, bed) = Bed::scripted();
    let client = bed.sending(GET);
    let mut server = upstream.asked();
    drop(client);
    server.send("HTTP/1.1 200 OK\r\nContent-Length: 1000000000\r\n\r\n");
    // More than fits into all buffers on the way: the write fails because the client is gone.
    let block = vec![0u8; 65536];
    while server.stream.write_all(&block).is_ok() {}
    bed.expect_rejected("client_gone", 1.0);
    bed.expect("heddle_connections_active", &[], 0.0);
}

#[test]
fn one_connection_too_many_is_closed_and_counted_by_the_thread_that_accepts() {
    for (workers, who) in [(1, "worker=\"0\""), (2, "worker=\"manager\"")] {
        let mut settings = Settings::default();
        settings.bounds.connections = 1;
        (settings.workers.min, settings.workers.max) = (workers, workers);
        let bed = Bed::with(settings, &mesh(&[serve(|_| String::new())], None));
        let mut first = bed.sending(GET);
        assert_eq!(first.response().status(), 200);
        assert_eq!(bed.client().rest(), b"");
        bed.expect("heddle_connections_refused_total", &[who], 1.0);
        bed.expect("heddle_connections_refused_total", &[], 1.0);
        bed.expect("heddle_connections_unplaced_total", &[], 0.0);
        assert_eq!(bed.registry.connections_refused(), 1);
    }
}

#[test]
fn a_slow_reader_stops_the_sender_and_memory_stays_bounded() {
    let (upstream, bed) = Bed::scripted();
    let mut client = bed.sending(GET);
    let mut server = upstream.replying("HTTP/1.1 200 OK\r\nContent-Length: 1000000000\r\n\r\n");
    client.head();
    // The client does not read, so the sender must be blocked long before it has sent a gigabyte.
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
    let (upstream, bed) = Bed::scripted();
    let (mut busy, mut idle) = (bed.client(), bed.sending(GET));
    let mut server = upstream.answering("");
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
    server.answer("done");
    let response = tokio::task::spawn_blocking(move || busy.response())
        .await
        .unwrap();
    assert_eq!(response.body, b"done");
    assert_eq!(response.field("connection"), Some("close"));
    assert_eq!(drained.await.unwrap().cut, 0);
}

#[tokio::test]
async fn draining_cuts_what_does_not_end_and_says_so() {
    let (upstream, bed, log) = Bed::scripted_logged(Settings::default());
    // One has sent half a request head, one waits for its response, and one has half of its response.
    let _partial = bed.sending("GET / HTTP/1.1\r\n");
    bed.expect("heddle_buffer_blocks_active", &[], 1.0);
    let mut waiting = bed.sending(GET);
    let _server = upstream.asked();
    let mut begun = bed.sending(GET);
    let _second = upstream.replying("HTTP/1.1 200 OK\r\nContent-Length: 10\r\n\r\nhalf");
    begun.head();
    bed.expect("heddle_connections_active", &[], 3.0);
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
    for (line, status) in lines.iter().zip([200, 503, 503]) {
        let cut = format!(r#""status":{status},"reason":"draining","blame":"heddle""#);
        assert!(line.contains(&cut), "{line}");
    }
    assert_eq!(begun.rest(), b"half");
    assert_eq!(waiting.response().verdict(), (503, "draining"));
}
