//! Messages that only other HTTP/2 implementations send: a length together with trailers, and the end of a stream in a
//! separate frame.

use std::future::poll_fn;

use bytes::Bytes;
use h2::client::SendRequest;
use h2::server::SendResponse;
use http::{HeaderMap, HeaderValue};

use super::*;

/// Sends a request to a server, and returns the client's and the server's handle of the response.
async fn asked() -> (h2::client::ResponseFuture, SendResponse<Bytes>) {
    let (near, far) = tokio::io::duplex(1 << 16);
    let shaken = tokio::join!(h2::client::handshake(near), h2::server::handshake(far));
    let (sender, driver): (SendRequest<Bytes>, _) = shaken.0.unwrap();
    let mut server: h2::server::Connection<_, Bytes> = shaken.1.unwrap();
    tokio::spawn(driver);
    let mut sender = sender.ready().await.unwrap();
    let request = http::Request::get("http://a/").body(()).unwrap();
    let (answer, _) = sender.send_request(request, true).unwrap();
    let (_, respond) = server.accept().await.unwrap().unwrap();
    tokio::spawn(async move { while server.accept().await.is_some() {} });
    (answer, respond)
}

/// Receives a whole response: its head and data, and its trailers.
async fn received(answer: h2::client::ResponseFuture) -> (Vec<u8>, Vec<u8>) {
    let shared = Shared::new(0);
    let mut incoming = Incoming::Answer(answer, Method::Get);
    let mut all = Vec::new();
    loop {
        let put = &mut |bytes: &[u8]| {
            all.extend_from_slice(bytes);
            Ok(())
        };
        let moved = poll_fn(|cx| incoming.poll_take(cx, &shared, 1, put)).await;
        if moved.unwrap() == 0 {
            break;
        }
    }
    let mut trailers = Vec::new();
    for (name, value) in incoming.take_trailers().iter().flat_map(|all| all.iter()) {
        head::field(&mut trailers, name.as_str(), value.as_bytes());
    }
    assert!(incoming.is_whole());
    (all, trailers)
}

fn trailers() -> HeaderMap {
    let mut trailers = HeaderMap::new();
    trailers.insert("grpc-status", HeaderValue::from_static("0"));
    trailers
}

const HEAD: &[u8] = b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\n";

#[tokio::test]
async fn trailers_come_behind_a_body_of_a_length() {
    let (answer, mut respond) = asked().await;
    let head = http::Response::builder().header("content-length", 2);
    let mut stream = respond
        .send_response(head.body(()).unwrap(), false)
        .unwrap();
    stream.send_data(Bytes::from_static(b"ok"), false).unwrap();
    stream.send_trailers(trailers()).unwrap();
    let (all, said) = received(answer).await;
    assert_eq!(all, [HEAD, b"ok"].concat());
    assert_eq!(said, b"grpc-status: 0\r\n");
}

#[tokio::test]
async fn a_body_ends_in_a_frame_without_data() {
    let (answer, mut respond) = asked().await;
    let head = http::Response::builder().body(()).unwrap();
    let mut stream = respond.send_response(head, false).unwrap();
    stream.send_data(Bytes::new(), false).unwrap();
    stream.send_data(Bytes::from_static(b"ok"), false).unwrap();
    stream.send_data(Bytes::new(), true).unwrap();
    let (all, said) = received(answer).await;
    let head = b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n";
    assert_eq!(all, [&head[..], b"ok"].concat());
    assert_eq!(said, b"");
}

#[tokio::test]
async fn a_body_that_is_given_up_is_not_whole_whatever_the_reason() {
    for (is_whole, reason) in [
        (true, h2::Reason::NO_ERROR),
        (false, h2::Reason::NO_ERROR),
        (false, h2::Reason::CANCEL),
    ] {
        let (answer, mut respond) = asked().await;
        let head = http::Response::builder().body(()).unwrap();
        let mut stream = respond.send_response(head, false).unwrap();
        stream
            .send_data(Bytes::from_static(b"ok"), is_whole)
            .unwrap();
        // Let the data be received before the reset.
        tokio::task::yield_now().await;
        stream.send_reset(reason);
        let shared = Shared::new(0);
        let mut incoming = Incoming::Answer(answer, Method::Get);
        let ended = loop {
            let put = &mut |_: &[u8]| Ok(());
            match poll_fn(|cx| incoming.poll_take(cx, &shared, 1, put)).await {
                Ok(0) => break true,
                Ok(_) => {}
                Err(_) => break false,
            }
        };
        assert_eq!(ended, is_whole, "{reason:?}");
    }
}

#[tokio::test]
async fn a_body_that_is_open_goes_on_with_trailers() {
    for is_open in [true, false] {
        let (answer, respond) = asked().await;
        let shared = Shared::new(0);
        let mut message = Message::from(HEAD);
        if is_open {
            message.leave_open();
        }
        let mut outgoing = Outgoing::Answer(respond, Method::Get);
        outgoing.answer(&shared, &message).unwrap();
        let data = poll_fn(|cx| outgoing.poll_put(cx, &shared, [&b"ok"[..]].into_iter(), 2));
        assert_eq!(data.await.unwrap(), 2);
        outgoing.add_trailer(b"grpc-status", b"0");
        outgoing.end_body(&shared).unwrap();
        let mut body = answer.await.unwrap().into_body();
        assert_eq!(body.data().await.unwrap().unwrap(), "ok");
        let said = body.trailers().await.unwrap();
        assert_eq!(said, is_open.then(trailers));
    }
}
