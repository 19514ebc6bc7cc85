use std::future::poll_fn;

use bytes::Bytes;
use h2::client::SendRequest;
use h2::server::SendResponse;
use h2::{Reason, RecvStream};
use http::Request;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::mpsc;

use super::super::call::Calls;
use super::super::{called, calling, forward};

/// A call as it arrives at the upstream.
type Arrived = (Request<RecvStream>, SendResponse<Bytes>);

/// A client of the proxy, and the calls that come through it.
async fn through_the_proxy() -> (SendRequest<Bytes>, mpsc::Receiver<Arrived>) {
    let upstream = TcpListener::bind("127.0.0.1:0").await.expect("a port");
    let proxy = TcpListener::bind("127.0.0.1:0").await.expect("a port");
    let address = proxy.local_addr().expect("an address");
    let (arrives, arrived) = mpsc::channel(1);
    let to = upstream.local_addr().expect("an address");
    tokio::spawn(forward::serve(proxy, to));
    tokio::spawn(async move {
        let (stream, _) = upstream.accept().await.expect("the proxy");
        let mut connection = called().handshake(stream).await.expect("HTTP/2");
        while let Some(Ok(call)) = connection.accept().await {
            arrives.send(call).await.expect("wanted");
        }
    });
    let stream = TcpStream::connect(address).await.expect("the proxy");
    let (sender, connection) = calling().handshake(stream).await.expect("HTTP/2");
    tokio::spawn(connection);
    let sender = sender.ready().await.expect("room");
    (sender, arrived)
}

fn head() -> Request<()> {
    Calls::new("echo0.lab", 64, 1).expect("an authority").next()
}

#[tokio::test]
async fn a_client_that_resets_within_its_request_resets_at_the_upstream() {
    let (mut sender, mut arrived) = through_the_proxy().await;
    let (_answer, mut stream) = sender.send_request(head(), false).expect("sent");
    let (call, _respond) = arrived.recv().await.expect("a call");
    stream.send_reset(Reason::ENHANCE_YOUR_CALM);
    let data = call.into_body().data().await.expect("not the end");
    let error = data.expect_err("reset");
    assert_eq!(error.reason(), Some(Reason::ENHANCE_YOUR_CALM));
}

#[tokio::test]
async fn a_client_that_resets_while_it_waits_resets_at_the_upstream() {
    let (mut sender, mut arrived) = through_the_proxy().await;
    let (_answer, mut stream) = sender.send_request(head(), true).expect("sent");
    let (_call, mut respond) = arrived.recv().await.expect("a call");
    stream.send_reset(Reason::CANCEL);
    let reset = poll_fn(|cx| respond.poll_reset(cx)).await;
    assert_eq!(reset.ok(), Some(Reason::CANCEL));
}

#[tokio::test]
async fn an_upstream_that_resets_before_and_within_its_answer_resets_at_the_client() {
    let (mut sender, mut arrived) = through_the_proxy().await;
    let (answer, _stream) = sender.send_request(head(), true).expect("sent");
    let (_call, mut respond) = arrived.recv().await.expect("a call");
    respond.send_reset(Reason::ENHANCE_YOUR_CALM);
    let error = answer.await.expect_err("reset");
    assert_eq!(error.reason(), Some(Reason::ENHANCE_YOUR_CALM));

    let (answer, _stream) = sender.send_request(head(), true).expect("sent");
    let (_call, mut respond) = arrived.recv().await.expect("a call");
    let head = super::super::call::answer();
    let mut stream = respond.send_response(head, false).expect("sent");
    let mut body = answer.await.expect("a head").into_body();
    stream.send_reset(Reason::INTERNAL_ERROR);
    let error = body.data().await.expect("not the end").expect_err("reset");
    assert_eq!(error.reason(), Some(Reason::INTERNAL_ERROR));
}

#[tokio::test]
async fn a_request_is_taken_no_faster_than_the_upstream_reads_it() {
    let (mut sender, mut arrived) = through_the_proxy().await;
    let (_answer, mut stream) = sender.send_request(head(), false).expect("sent");
    let (call, _respond) = arrived.recv().await.expect("a call");
    let mut body = call.into_body();
    let bytes = 4 << 20;
    let sends = async {
        let mut left = bytes;
        while left > 0 {
            stream.reserve_capacity(left);
            let room = poll_fn(|cx| stream.poll_capacity(cx)).await;
            let room = room.expect("open").expect("room").min(left);
            left -= room;
            stream
                .send_data(vec![b'm'; room].into(), left == 0)
                .expect("sent");
        }
    };
    tokio::pin!(sends);
    // Nothing is read yet: only windows and buffers fill.
    let stuck = tokio::time::timeout(std::time::Duration::from_millis(200), &mut sends).await;
    assert!(stuck.is_err(), "all was taken");
    let reads = async {
        let mut read = 0;
        while let Some(part) = body.data().await {
            let part = part.expect("data");
            read += part.len();
            body.flow_control()
                .release_capacity(part.len())
                .expect("released");
        }
        read
    };
    let ((), read) = tokio::join!(sends, reads);
    assert_eq!(read, bytes);
}
