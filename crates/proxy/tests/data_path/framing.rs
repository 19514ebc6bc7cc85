//! Message framing is forwarded in one canonical form, whatever form it arrived in.

use heddle_model::AppProtocol;
use heddle_proxy::Protocol;

use crate::nodes::pair::Pair;
use crate::support::{Bed, Client, GET, Upstream, field, over};

/// Sends one request; returns what reaches the endpoint.
fn reaches(client: &mut Client, upstream: &Upstream, request: &str, body: &str) -> String {
    client.send(request);
    let mut server = upstream.accept();
    let head = server.head();
    let seen = server.exact(body.len());
    assert_eq!(String::from_utf8(seen).unwrap(), body, "{request:?}");
    server.send("HTTP/1.1 200 OK\r\nContent-Length: 0\r\nConnection: close\r\n\r\n");
    assert_eq!(client.response().status(), 200, "{request:?}");
    head
}

#[test]
fn framing_fields_are_written_anew() {
    let (upstream, bed) = Bed::scripted();
    for (came, goes) in [
        ("Transfer-Encoding: CHUNKED", "Transfer-Encoding: chunked"),
        (
            "Transfer-Encoding:\tchunked \t",
            "Transfer-Encoding: chunked",
        ),
        ("transfer-encoding:chunked", "Transfer-Encoding: chunked"),
        ("Content-Length: 0005", "Content-Length: 5"),
        ("Content-Length:\t5\t", "Content-Length: 5"),
    ] {
        let body = match came.contains("ength") {
            true => "hello",
            false => "5\r\nhello\r\n0\r\n\r\n",
        };
        let request = format!("POST / HTTP/1.1\r\nHost: echo\r\n{came}\r\nX: y\r\n\r\n{body}");
        let head = reaches(&mut bed.client(), &upstream, &request, body);
        assert!(head.contains(&format!("\r\n{goes}\r\nX: y\r\n")), "{head}");
    }
}

#[test]
fn framing_fields_of_answers_are_written_anew() {
    let (upstream, bed) = Bed::scripted();
    for (came, goes) in [
        ("Transfer-Encoding: Chunked", "Transfer-Encoding: chunked"),
        ("Content-Length: 0000\t", "Content-Length: 0"),
    ] {
        let mut client = bed.sending(GET);
        let _server = upstream.replying(format!(
            "HTTP/1.1 200 OK\r\n{came}\r\nConnection: close\r\n\r\n"
        ));
        let head = client.head();
        assert!(head.contains(&format!("\r\n{goes}\r\n")), "{head}");
    }
}

#[test]
fn look_alikes_of_framing_fields_are_refused() {
    let (upstream, bed) = Bed::scripted();
    for name in [
        "Transfer.Encoding",
        "Transfer_Encoding",
        "transfer~encoding",
        "Content_Length",
        "CONTENT.LENGTH",
    ] {
        let mut client = bed.sending(format!(
            "POST / HTTP/1.1\r\nHost: echo\r\n{name}: chunked\r\nContent-Length: 0\r\n\r\n"
        ));
        let response = client.response();
        assert_eq!(response.verdict(), (400, "field_alias"), "{name}");
        assert_eq!(client.rest(), b"");
    }
    assert!(upstream.is_quiet());
}

/// A chunked body with every unusual form, and the canonical form.
const CHUNKS: &str = "5;a=b\r\nhello\r\n0006\r\n world\r\n00000000a;x=\"y\"\r\n0123456789\r\n\
                      1\r\n!\r\n000;last\r\nX-Sum: 22\r\n\r\n";
const PLAIN: &str =
    "5\r\nhello\r\n6\r\n world\r\na\r\n0123456789\r\n1\r\n!\r\n0\r\nX-Sum: 22\r\n\r\n";

#[test]
fn chunk_extensions_and_zeros_go_no_further() {
    let (upstream, bed) = Bed::scripted();
    // In one piece with the head, and after it in pieces.
    for piece in [CHUNKS.len(), 1, 2, 3, 7] {
        let mut client = bed.client();
        let mut head =
            String::from("POST / HTTP/1.1\r\nHost: echo\r\nTransfer-Encoding: chunked\r\n\r\n");
        let mut body = CHUNKS;
        if piece == CHUNKS.len() {
            head.push_str(body);
            body = "";
        }
        client.send(head);
        let mut server = upstream.asked();
        for piece in body.as_bytes().chunks(piece) {
            client.send(piece);
            std::thread::yield_now();
        }
        let seen = String::from_utf8(server.exact(PLAIN.len())).unwrap();
        assert_eq!(seen, PLAIN, "in pieces of {piece}");
        server.send("HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n");
        client.head();
        for piece in CHUNKS.as_bytes().chunks(piece) {
            server.send(piece);
            std::thread::yield_now();
        }
        let seen = String::from_utf8(client.exact(PLAIN.len())).unwrap();
        assert_eq!(seen, PLAIN, "in pieces of {piece}");
        // Both connections are still usable, with no bytes left over.
        client.send("GET /next HTTP/1.1\r\nHost: echo\r\n\r\n");
        assert!(server.head().starts_with("GET /next "));
        server.send("HTTP/1.1 200 OK\r\nContent-Length: 0\r\nConnection: close\r\n\r\n");
        assert_eq!(client.response().status(), 200);
    }
}

#[test]
fn between_nodes_chunks_go_on_in_one_form() {
    for between_nodes in [Protocol::Link, Protocol::Http1] {
        let (upstream, pair) = Pair::scripted_with(&over(between_nodes), AppProtocol::Http);
        let request = format!(
            "POST / HTTP/1.1\r\nHost: echo.test\r\nTransfer-Encoding: CHUNKED\r\n\r\n{CHUNKS}"
        );
        let head = reaches(&mut pair.client("shop"), &upstream, &request, PLAIN);
        assert_eq!(field(&head, "transfer-encoding"), Some("chunked"));
    }
}

/// Chunks that are mostly framing, far more than fit into a block, mixed with data that fits.
#[test]
fn a_long_body_of_unusual_chunks_is_whole() {
    let (upstream, bed) = Bed::scripted();
    let (mut came, mut goes) = (String::new(), String::new());
    for turn in 0..3000 {
        let data = "x".repeat(1 + turn % 40);
        let size = data.len();
        let extension = if turn % 3 == 0 { ";a" } else { "" };
        let zeros = if turn % 5 == 0 { "00" } else { "" };
        came.push_str(&format!("{zeros}{size:x}{extension}\r\n{data}\r\n"));
        goes.push_str(&format!("{size:x}\r\n{data}\r\n"));
        if turn % 500 == 0 {
            let wide = "y".repeat(100_000);
            came.push_str(&format!("186a0\r\n{wide}\r\n"));
            goes.push_str(&format!("186a0\r\n{wide}\r\n"));
        }
    }
    came.push_str("0\r\n\r\n");
    goes.push_str("0\r\n\r\n");
    let mut client = bed.client();
    let sender = std::thread::spawn(move || {
        client.send("POST / HTTP/1.1\r\nHost: echo\r\nTransfer-Encoding: chunked\r\n\r\n");
        client.ask(came).status()
    });
    let mut server = upstream.asked();
    assert!(server.exact(goes.len()) == goes.as_bytes());
    server.answer("");
    assert_eq!(sender.join().unwrap(), 200);
}

/// The client disconnects within a chunk extension, which is never forwarded.
#[test]
fn a_body_that_ends_in_the_middle_of_an_extension_is_not_whole() {
    let (upstream, bed) = Bed::scripted();
    let client = bed.sending(
        "POST / HTTP/1.1\r\nHost: echo\r\nTransfer-Encoding: chunked\r\n\r\n1\r\nx\r\n0;exten",
    );
    let mut server = upstream.asked();
    assert_eq!(server.exact(6), b"1\r\nx\r\n");
    drop(client);
    assert_eq!(server.rest(), b"");
    bed.expect_rejected("client_gone", 1.0);
}
