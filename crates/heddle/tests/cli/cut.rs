//! A killed proxy cannot report anything: byte streams through it must look cut at both ends, never complete.

use std::io::{ErrorKind, Read, Write};
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};
use std::time::Duration;

use rustix::process::Signal;

use crate::harness::{Folder, Heddle, eventually};
use crate::nodes::{is_well, join};

/// Streams of each test.
const STREAMS: usize = 15;
/// Longest time until an end notices a cut: a node first waits for a lost link to recover.
const HEARD_WITHIN: Duration = Duration::from_secs(40);

/// Both ends of a connection.
type Ends = (TcpStream, TcpStream);

fn patient(stream: TcpStream) -> TcpStream {
    stream.set_nodelay(true).expect("an option");
    stream
        .set_read_timeout(Some(HEARD_WITHIN))
        .expect("a timeout");
    stream
}

/// Dials the proxy, and accepts the connection at the server. Between nodes that have just joined, an attempt may be
/// refused.
fn dial(proxy: SocketAddr, server: &TcpListener) -> Ends {
    let mut ends = None;
    eventually("a connection reaches the server", || {
        let client = TcpStream::connect(proxy).expect("connected");
        ends = accept(&client, server).map(|end| (patient(client), patient(end)));
        ends.is_some()
    });
    ends.expect("both ends")
}

/// Accepts a client's connection at the server; `None` if it ends before.
fn accept(client: &TcpStream, server: &TcpListener) -> Option<TcpStream> {
    server.set_nonblocking(true).expect("an option");
    client.set_nonblocking(true).expect("an option");
    let is_open = || match client.peek(&mut [0]) {
        Ok(bytes) => bytes > 0,
        Err(error) => error.kind() == ErrorKind::WouldBlock,
    };
    let mut taken = None;
    eventually("the server is called, or the client told", || {
        taken = server.accept().ok();
        taken.is_some() || !is_open()
    });
    client.set_nonblocking(false).expect("an option");
    let (end, _) = taken?;
    end.set_nonblocking(false).expect("an option");
    Some(end)
}

/// Sends bytes from one end, and checks that the other reads them.
fn pass(mut from: &TcpStream, mut to: &TcpStream, bytes: &[u8]) {
    from.write_all(bytes).expect("sent");
    let mut read = vec![0; bytes.len()];
    to.read_exact(&mut read).expect("arrived");
    assert_eq!(read, bytes);
}

/// Result of the last read of an end.
fn last_word(mut end: &TcpStream) -> Result<usize, ErrorKind> {
    end.read(&mut [0]).map_err(|error| error.kind())
}

const RESET: Result<usize, ErrorKind> = Err(ErrorKind::ConnectionReset);

/// Workloads without a command at these addresses, and a Service with this definition of their port.
fn service(namespace: &str, name: &str, server: &TcpListener, port: &str) -> String {
    let address = server.local_addr().expect("an address");
    let (ip, number) = (address.ip(), address.port());
    format!(
        "apiVersion: v1
kind: Service
metadata: {{name: {name}, namespace: {namespace}}}
spec: {{selector: {{app: {name}}}, ports: [{{{port}port: 80, targetPort: {number}}}]}}
---
apiVersion: heddle.dev/v1alpha1
kind: LocalWorkload
metadata: {{name: {name}, namespace: {namespace}, labels: {{app: {name}}}}}
spec: {{address: {ip}, ports: [{{port: {number}}}]}}
"
    )
}

fn server(last: u8) -> TcpListener {
    TcpListener::bind(SocketAddr::from(([127, 11, 0, last], 0))).expect("a port")
}

#[test]
fn streams_of_a_proxy_that_is_killed_are_reset_at_both_ends() {
    let folder = Folder::new();
    let (declared, open, web) = (server(1), server(2), server(3));
    folder.write(
        "a.yaml",
        &[
            service("cut", "declared", &declared, "appProtocol: tcp, "),
            service("cut", "open", &open, ""),
            service("cut", "web", &web, "appProtocol: http, "),
        ]
        .join("---\n"),
    );
    let heddle = Heddle::up(&folder, &[]);
    let at = |service: &str| heddle.address(&format!("cut/{service}"), None);
    let (to_declared, to_open, to_web) = (at("declared"), at("open"), at("web"));
    let mut streams = Vec::new();
    for _ in 0..STREAMS {
        // Everything that was sent has been read: otherwise the kernel would send a reset by itself.
        let (client, end) = dial(to_declared, &declared);
        pass(&client, &end, b"question");
        pass(&end, &client, b"answer");
        streams.push(("bytes", client, end));
        let (client, end) = dial(to_open, &open);
        pass(&end, &client, b"a greeting");
        pass(&client, &end, b"an answer");
        streams.push(("a server that speaks first", client, end));
        let (client, end) = dial(to_open, &open);
        streams.push(("no word yet", client, end));
        let (client, end) = dial(to_open, &open);
        pass(&client, &end, b"\x16\x03\x01 no HTTP\n");
        streams.push(("found out", client, end));
        let client = patient(TcpStream::connect(to_web).expect("connected"));
        (&client)
            .write_all(
                b"GET / HTTP/1.1\r\nhost: web\r\nconnection: upgrade\r\nupgrade: websocket\r\n\r\n",
            )
            .expect("sent");
        let end = patient(accept(&client, &web).expect("accepted"));
        until_empty_line(&end);
        (&end)
            .write_all(b"HTTP/1.1 101 S\r\nconnection: upgrade\r\nupgrade: websocket\r\n\r\n")
            .expect("sent");
        until_empty_line(&client);
        pass(&end, &client, b"a frame");
        streams.push(("a WebSocket", client, end));
    }
    // A client that has half-closed sees a reset, not the end of the answer.
    let (asking, answering) = dial(to_declared, &declared);
    pass(&asking, &answering, b"question");
    asking.shutdown(Shutdown::Write).expect("shut down");
    assert_eq!(last_word(&answering), Ok(0));
    pass(&answering, &asking, b"half of the answer");

    heddle.signal(Signal::KILL);
    heddle.ended();
    for (what, client, server) in &streams {
        assert_eq!(last_word(client), RESET, "{what}, at the client");
        assert_eq!(last_word(server), RESET, "{what}, at the server");
    }
    assert_eq!(last_word(&asking), RESET, "half closed");
}

fn until_empty_line(mut stream: &TcpStream) {
    let mut head = Vec::new();
    while !head.ends_with(b"\r\n\r\n") {
        let mut byte = [0];
        stream.read_exact(&mut byte).expect("a head");
        head.extend(byte);
    }
}

/// Two nodes, `n1` with the client and `n2` with the server, and the streams between them.
struct Between {
    _folder: Folder,
    _control: Heddle,
    calling: Heddle,
    called: Heddle,
    streams: Vec<Ends>,
}

fn between(last: u8) -> Between {
    let server = server(last);
    let port = server.local_addr().expect("an address").port();
    let namespace = format!("cut{last}");
    let folder = Folder::new();
    let mesh = "
{apiVersion: v1, kind: ServiceAccount, metadata: {name: cart, namespace: NS}}
---
{apiVersion: v1, kind: ServiceAccount, metadata: {name: web, namespace: NS}}
---
apiVersion: v1
kind: Service
metadata: {name: cart, namespace: NS}
spec: {selector: {app: cart}, ports: [{name: tcp-cart, port: 80, targetPort: PORT}]}
---
apiVersion: heddle.dev/v1alpha1
kind: LocalWorkload
metadata: {name: cart, namespace: NS, labels: {app: cart}}
spec: {nodeName: n2, address: 127.11.0.LAST, serviceAccountName: cart, ports: [{port: PORT}]}
---
apiVersion: heddle.dev/v1alpha1
kind: LocalWorkload
metadata: {name: web, namespace: NS}
spec: {nodeName: n1, address: 127.11.1.LAST, serviceAccountName: web}
"
    .replace("NS", &namespace)
    .replace("PORT", &port.to_string())
    .replace("LAST", &last.to_string());
    folder.write("a.yaml", &mesh);
    let (control, at) = Heddle::control(&folder, &[]);
    let (calling, called) = (join(&folder, "n1", at), join(&folder, "n2", at));
    eventually("both have their identities", || {
        is_well(&folder, "n1", 2) && is_well(&folder, "n2", 2)
    });
    for node in [&calling, &called] {
        node.stdout_line("SERVICE");
    }
    let to = calling.address(
        &format!("{namespace}/cart"),
        Some(&format!("{namespace}/web")),
    );
    let streams = (0..STREAMS).map(|_| {
        let (client, end) = dial(to, &server);
        pass(&client, &end, b"question");
        pass(&end, &client, b"answer");
        (client, end)
    });
    Between {
        streams: streams.collect(),
        _folder: folder,
        _control: control,
        calling,
        called,
    }
}

#[test]
fn streams_between_nodes_are_reset_when_the_called_one_is_killed() {
    let between = between(10);
    between.called.signal(Signal::KILL);
    between.called.ended();
    for (_, server) in &between.streams {
        assert_eq!(last_word(server), RESET, "at the server");
    }
    // The other node says so and waits for the link to recover, then gives up.
    let calling = &between.calling;
    calling.stderr_line("another node cannot be reached: open streams of a link to it wait");
    for (client, _) in &between.streams {
        assert_eq!(last_word(client), RESET, "at the client");
    }
}

#[test]
fn streams_between_nodes_are_reset_when_the_calling_one_is_killed() {
    let between = between(11);
    between.calling.signal(Signal::KILL);
    between.calling.ended();
    for (client, _) in &between.streams {
        assert_eq!(last_word(client), RESET, "at the client");
    }
    for (_, server) in &between.streams {
        assert_eq!(last_word(server), RESET, "at the server");
    }
}
