//! WebSockets with a third-party library at both ends: messages of every size, fragments, pings, and every way to
//! close, on one node and between two.

use std::net::{SocketAddr, TcpStream};

use heddle_model::AppProtocol;
use heddle_proxy::Protocol;
use tungstenite::protocol::CloseFrame;
use tungstenite::protocol::frame::Frame;
use tungstenite::protocol::frame::coding::{CloseCode, Data, OpCode};
use tungstenite::{Error, Message, WebSocket};

use crate::nodes::pair::Pair;
use crate::support::{Bed, Client, PATIENCE, each_connection, over};

/// Number of WebSockets that are opened, used and closed one after the other.
const IN_A_ROW: usize = 1_000;

/// An endpoint that sends every message back. After `close CODE` it closes with that code.
fn endpoint() -> SocketAddr {
    each_connection(|stream| {
        stream.set_nodelay(true).unwrap();
        // A client may disconnect at any time.
        let Ok(mut socket) = tungstenite::accept(stream) else {
            return;
        };
        while let Ok(message) = socket.read() {
            let code = match &message {
                Message::Text(text) => text.strip_prefix("close ").map(str::to_owned),
                _ => None,
            };
            let _gone = match code {
                Some(code) => socket.close(Some(frame(code.parse().unwrap()))),
                None if message.is_text() || message.is_binary() => socket.send(message),
                None => Ok(()),
            };
        }
    })
}

fn frame(code: u16) -> CloseFrame {
    CloseFrame {
        code: CloseCode::from(code),
        reason: "said why".into(),
    }
}

fn connect(client: Client) -> WebSocket<TcpStream> {
    client.stream.set_read_timeout(Some(PATIENCE)).unwrap();
    let (socket, response) = tungstenite::client("ws://echo.test/chat", client.stream).unwrap();
    assert_eq!(response.status(), 101);
    socket
}

/// The next message, without control frames.
fn next(socket: &mut WebSocket<TcpStream>) -> Message {
    loop {
        match socket.read().unwrap() {
            Message::Ping(_) | Message::Pong(_) => {}
            message => return message,
        }
    }
}

/// Waits until a connection is closed in order; returns the close code.
fn closed(mut socket: WebSocket<TcpStream>) -> Option<u16> {
    let mut why = None;
    loop {
        match socket.read() {
            Ok(Message::Close(frame)) => why = frame.map(|frame| frame.code.into()),
            Ok(_) => {}
            Err(Error::ConnectionClosed) => return why,
            Err(error) => panic!("closed, but not as it should be: {error}"),
        }
    }
}

fn messages(client: &dyn Fn() -> Client) {
    let mut socket = connect(client());
    for n in [0, 1, 125, 126, 65_535, 65_536, 1 << 20, 8 << 20] {
        let bytes: Vec<u8> = (0..n).map(|i| (i * 7 + i / 251) as u8).collect();
        let sent = Message::binary(bytes);
        socket.send(sent.clone()).unwrap();
        assert!(next(&mut socket) == sent, "{n} bytes");
    }
    socket.close(None).unwrap();
    assert_eq!(closed(socket), None);
}

fn fragments_and_pings(client: &dyn Fn() -> Client) {
    let mut socket = connect(client());
    for turn in 0..50 {
        let parts = ["frag", "ments of one", " message"];
        for (n, part) in parts.iter().enumerate() {
            let kind = match n {
                0 => Data::Text,
                _ => Data::Continue,
            };
            let part = Frame::message(*part, OpCode::Data(kind), n == parts.len() - 1);
            socket.send(Message::Frame(part)).unwrap();
            let ping = format!("{turn}.{n}");
            socket.send(Message::Ping(ping.into())).unwrap();
        }
        let mut pongs = 0;
        let mut text = None;
        while pongs < parts.len() || text.is_none() {
            match socket.read().unwrap() {
                Message::Pong(pong) => {
                    assert_eq!(pong, format!("{turn}.{pongs}"));
                    pongs += 1;
                }
                Message::Text(said) => text = Some(said),
                other => panic!("{other:?}"),
            }
        }
        assert_eq!(text.unwrap(), "fragments of one message");
    }
    socket.close(Some(frame(1000))).unwrap();
    assert_eq!(closed(socket), Some(1000));
}

fn close_codes(client: &dyn Fn() -> Client) {
    for code in [1000, 1001, 1002, 1003, 1007, 1008, 1009, 1011, 3000, 4999] {
        let mut socket = connect(client());
        socket.close(Some(frame(code))).unwrap();
        assert_eq!(closed(socket), Some(code), "by the client");
        let mut socket = connect(client());
        socket.send(format!("close {code}").into()).unwrap();
        assert_eq!(closed(socket), Some(code), "by the endpoint");
        // A client that disconnects without a close frame.
        drop(connect(client()));
    }
}

fn in_a_row(client: &dyn Fn() -> Client, connects: usize) {
    for turn in 0..connects {
        let mut socket = connect(client());
        let said = Message::from(format!("{turn}"));
        socket.send(said.clone()).unwrap();
        assert_eq!(next(&mut socket), said);
        socket.close(None).unwrap();
        closed(socket);
    }
}

fn all(client: &dyn Fn() -> Client, connects: usize) {
    messages(client);
    fragments_and_pings(client);
    close_codes(client);
    in_a_row(client, connects);
}

fn between_nodes(between_nodes: Protocol, connects: usize) {
    let settings = over(between_nodes);
    let pair = Pair::with(&settings, endpoint(), AppProtocol::Http);
    all(&|| pair.client("shop"), connects);
    for side in [&pair.calling, &pair.called] {
        side.expect("heddle_tcp_connections_active", &[], 0.0);
    }
}

#[test]
fn websockets_on_one_node() {
    let bed = Bed::new(&[endpoint()]);
    all(&|| bed.client(), IN_A_ROW);
}

#[test]
fn websockets_over_links() {
    between_nodes(Protocol::Link, IN_A_ROW);
}

#[test]
fn websockets_beside_http2() {
    between_nodes(Protocol::Http2, 50);
}

#[test]
fn websockets_over_http1() {
    between_nodes(Protocol::Http1, 50);
}
