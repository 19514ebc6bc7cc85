use std::fs::{self, Permissions};
use std::io;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::time::Duration;

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream, UnixListener, UnixStream};
use tokio::sync::mpsc;

use super::client::not_connected;
use super::places::MOST;
use super::serve::{may_operate, serve_tcp, serve_unix};
use super::socket::default_folder;
use super::{AdminSocket, Answer, Ask, ClientError, Location, SocketError, get};

fn given(path: PathBuf) -> Location {
    Location::new(Some(path))
}

fn private_folder() -> tempfile::TempDir {
    let dir = tempfile::tempdir().expect("a folder");
    fs::set_permissions(dir.path(), Permissions::from_mode(0o700)).expect("a mode");
    dir
}

/// Answers every question with its name.
fn answering() -> mpsc::Sender<Ask> {
    let (asks, mut questions) = mpsc::channel::<Ask>(8);
    tokio::spawn(async move {
        while let Some(ask) = questions.recv().await {
            let _gone = ask
                .answer
                .send(Answer::text(200, format!("{:?}", ask.question)));
        }
    });
    asks
}

async fn exchange(stream: &mut (impl AsyncReadExt + AsyncWriteExt + Unpin), head: &str) -> String {
    stream.write_all(head.as_bytes()).await.expect("written");
    let mut answer = String::new();
    stream.read_to_string(&mut answer).await.expect("an answer");
    answer
}

async fn tcp(request: &str) -> String {
    let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
    let address = listener.local_addr().expect("an address");
    tokio::spawn(serve_tcp(listener, answering()));
    let mut stream = TcpStream::connect(address).await.expect("connected");
    exchange(
        &mut stream,
        &format!("{request} HTTP/1.1\r\nhost: x\r\n\r\n"),
    )
    .await
}

async fn unix(request: &str) -> String {
    let dir = private_folder();
    let listener = UnixListener::bind(dir.path().join("s")).expect("a socket");
    tokio::spawn(serve_unix(listener, answering()));
    let mut stream = UnixStream::connect(dir.path().join("s"))
        .await
        .expect("connected");
    exchange(
        &mut stream,
        &format!("{request} HTTP/1.1\r\nhost: x\r\n\r\n"),
    )
    .await
}

#[tokio::test]
async fn the_network_sees_metrics_and_readiness_only() {
    assert!(tcp("GET /metrics").await.ends_with("\r\n\r\nMetrics\n"));
    assert!(tcp("GET /ready").await.ends_with("\r\n\r\nReady\n"));
    for request in [
        "GET /status",
        "GET /config",
        "GET /latencies",
        "POST /log-reopen",
        "GET /",
        "GET /metrics/",
    ] {
        assert!(tcp(request).await.starts_with("HTTP/1.1 404 "), "{request}");
    }
    let refused = tcp("POST /metrics").await;
    assert!(
        refused.starts_with("HTTP/1.1 405 ") && refused.contains("allow: GET, HEAD\r\n"),
        "{refused}"
    );
}

#[tokio::test]
async fn the_operator_sees_everything() {
    for (request, expected) in [
        ("GET /metrics", "Metrics"),
        ("GET /ready", "Ready"),
        ("GET /status", "Status"),
        ("GET /config?x", "Config"),
        ("GET /latencies", "Latencies"),
        ("POST /log-reopen", "LogReopen"),
    ] {
        let answer = unix(request).await;
        assert!(
            answer.starts_with("HTTP/1.1 200 ")
                && answer.ends_with(&format!("\r\n\r\n{expected}\n")),
            "{answer}"
        );
    }
    assert!(unix("GET /log-reopen").await.starts_with("HTTP/1.1 405 "));
    assert!(unix("GET /order").await.starts_with("HTTP/1.1 405 "));
    assert!(unix("HEAD /ready").await.ends_with("\r\n\r\n"));
}

#[tokio::test]
async fn an_order_is_read_within_bounds_and_never_over_the_network() {
    let order = |body: &str| {
        let length = body.len();
        format!("POST /order HTTP/1.1\r\nhost: x\r\ncontent-length: {length}\r\n\r\n{body}")
    };
    let dir = private_folder();
    let listener = UnixListener::bind(dir.path().join("s")).expect("a socket");
    tokio::spawn(serve_unix(listener, answering()));
    for (body, expected) in [
        ("\"token-list\"", "200"),
        (r#"{"token-revoke":{"id":"x"}}"#, "200"),
        (r#"{"token-revoke":{"id":"x","and":1}"#, "400"),
        ("", "400"),
        (&" ".repeat(64 * 1024 + 1), "413"),
    ] {
        let stream = UnixStream::connect(dir.path().join("s")).await;
        let answer = exchange(&mut stream.expect("connected"), &order(body)).await;
        let status = format!("HTTP/1.1 {expected} ");
        assert!(answer.starts_with(&status), "{answer}");
    }

    let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
    let address = listener.local_addr().expect("an address");
    tokio::spawn(serve_tcp(listener, answering()));
    let mut stream = TcpStream::connect(address).await.expect("connected");
    let answer = exchange(&mut stream, &order("\"token-list\"")).await;
    assert!(answer.starts_with("HTTP/1.1 404 "), "{answer}");
}

#[tokio::test]
async fn a_head_that_is_too_large_is_refused() {
    let long = "x".repeat(64 * 1024);
    let answer = tcp(&format!("GET /{long}")).await;
    assert!(answer.starts_with("HTTP/1.1 4"), "{answer}");
}

/// How long a server whose questions are never answered keeps a connection that sends `said`.
async fn closed_after(said: &[u8]) -> Duration {
    let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
    let address = listener.local_addr().expect("an address");
    let (asks, _unanswered) = mpsc::channel::<Ask>(8);
    tokio::spawn(serve_tcp(listener, asks));
    let began = tokio::time::Instant::now();
    let mut stream = TcpStream::connect(address).await.expect("connected");
    stream.write_all(said).await.expect("written");
    let mut rest = Vec::new();
    let _reset_is_an_end_too = stream.read_to_end(&mut rest).await;
    assert!(!rest.starts_with(b"HTTP/1.1 200"), "{rest:?}");
    began.elapsed()
}

#[tokio::test(start_paused = true)]
async fn a_head_has_five_seconds_and_all_of_a_request_ten() {
    let whole = b"GET /ready HTTP/1.1\r\nhost: x\r\n\r\n";
    let half = &whole[..whole.len() - 2];
    for (said, seconds) in [(&b""[..], 5), (half, 5), (whole, 10)] {
        let closed = closed_after(said).await;
        let in_time = Duration::from_secs(seconds)..Duration::from_millis(1_000 * seconds + 100);
        assert!(in_time.contains(&closed), "{closed:?} for {said:?}");
    }
}

/// Connections that send only the first line of a request.
async fn half_requests(at: &Path, count: usize) -> Vec<UnixStream> {
    let mut held = Vec::new();
    for _ in 0..count {
        let mut stream = UnixStream::connect(at).await.expect("connected");
        // The server may have closed it already.
        let _may_be_closed = stream.write_all(b"GET /ready HTTP/1.1\r\n").await;
        held.push(stream);
    }
    held
}

#[tokio::test]
async fn an_operator_is_answered_beside_half_requests_that_hold_every_place() {
    let dir = private_folder();
    let at = dir.path().join("s");
    let listener = UnixListener::bind(&at).expect("a socket");
    tokio::spawn(serve_unix(listener, answering()));
    let held = half_requests(&at, 127).await;
    // Here they are of the same process as the operator: the oldest must wait out its time first.
    let asked = std::time::Instant::now();
    let answer = loop {
        let mut stream = UnixStream::connect(&at).await.expect("connected");
        let mut answer = String::new();
        let request = b"GET /status HTTP/1.1\r\nhost: x\r\n\r\n";
        // Until then the server closes the connection at once.
        let _may_be_closed = stream.write_all(request).await;
        let _may_be_reset = stream.read_to_string(&mut answer).await;
        if !answer.is_empty() {
            break answer;
        }
        assert!(asked.elapsed() < Duration::from_secs(3), "no answer");
    };
    assert!(answer.starts_with("HTTP/1.1 200 "), "{answer}");
    drop(held);
}

#[tokio::test]
async fn those_who_hold_a_place_and_go_on_are_served() {
    let dir = private_folder();
    let at = dir.path().join("s");
    let listener = UnixListener::bind(&at).expect("a socket");
    tokio::spawn(serve_unix(listener, answering()));
    let mut held = half_requests(&at, MOST).await;
    // One more connection of the same process gets no place …
    let mut one_more = UnixStream::connect(&at).await.expect("connected");
    let mut nothing = Vec::new();
    let _reset_is_an_end_too = one_more.read_to_end(&mut nothing).await;
    assert!(nothing.is_empty());
    // … and the earlier ones are served.
    let mut first = held.swap_remove(0);
    let answer = exchange(&mut first, "host: x\r\n\r\n").await;
    assert!(answer.contains("Ready"), "{answer}");
}

#[test]
fn only_the_same_user_and_root_may_operate() {
    assert!(may_operate(1_000, 1_000));
    assert!(may_operate(0, 1_000));
    assert!(!may_operate(1_001, 1_000));
    assert!(!may_operate(1_000, 0));
}

#[test]
fn a_live_socket_is_left_alone_and_a_stale_one_replaced() {
    let dir = private_folder();
    let at = given(dir.path().join("heddle.sock"));
    let (first, _listener) = AdminSocket::bind(&at).expect("bound");
    let mode = fs::metadata(&at.path).expect("there").permissions().mode();
    assert_eq!(mode & 0o777, 0o600);
    assert!(matches!(AdminSocket::bind(&at), Err(SocketError::Busy(_))));
    drop(first);
    assert!(!at.path.exists());

    // A killed process leaves its file behind.
    drop(std::os::unix::net::UnixListener::bind(&at.path).expect("bound"));
    assert!(at.path.exists());
    AdminSocket::bind(&at).expect("replaced");
}

#[test]
fn what_is_no_socket_is_never_removed() {
    let dir = private_folder();
    let at = given(dir.path().join("notes.txt"));
    fs::write(&at.path, "precious").expect("a file");
    let link = given(dir.path().join("link"));
    std::os::unix::fs::symlink("nowhere", &link.path).expect("a link");
    for (at, what) in [
        (&at, "is a file, not a socket"),
        (&link, "is a symbolic link"),
    ] {
        let said = AdminSocket::bind(at).expect_err("occupied").to_string();
        assert!(
            said.contains(what) && said.contains("choose another path with --socket"),
            "{said}"
        );
        AdminSocket::clear(at);
    }
    assert_eq!(fs::read_to_string(&at.path).expect("there"), "precious");
    assert!(fs::symlink_metadata(&link.path).is_ok());
    let lock = dir.path().join("notes.txt.lock");
    // `clear` creates the lock file; a refusal must not.
    fs::remove_file(&lock).expect("made by clear");
    AdminSocket::bind(&at).expect_err("occupied");
    assert!(!lock.exists());
}

#[test]
fn only_the_socket_that_was_bound_goes_with_its_claim() {
    let dir = private_folder();
    let at = given(dir.path().join("heddle.sock"));
    let (socket, _listener) = AdminSocket::bind(&at).expect("bound");
    fs::rename(&at.path, dir.path().join("moved.sock")).expect("moved");
    fs::write(&at.path, "precious").expect("a file");
    drop(socket);
    assert_eq!(fs::read_to_string(&at.path).expect("there"), "precious");
}

#[test]
fn a_path_that_no_socket_can_have_is_refused_with_its_length() {
    let dir = private_folder();
    let room = 107 - dir.path().as_os_str().len() - 1;
    let longest = given(dir.path().join("s".repeat(room)));
    assert!(AdminSocket::bind(&longest).is_ok());
    let too_long = given(dir.path().join("s".repeat(room + 1)));
    let error = AdminSocket::bind(&too_long).expect_err("too long");
    let said = error.to_string();
    assert!(
        said.contains("a path has at most 107 bytes, this has 108"),
        "{said}"
    );
    let said = get(&too_long, "/status").expect_err("too long").to_string();
    assert!(said.contains("at most 107 bytes"), "{said}");
}

#[test]
fn another_programs_socket_is_left_alone() {
    let dir = private_folder();
    let path = dir.path().join("other.sock");
    let _other = std::os::unix::net::UnixListener::bind(&path).expect("bound");
    assert!(matches!(
        AdminSocket::bind(&given(path)),
        Err(SocketError::Busy(_))
    ));
}

#[test]
fn a_missing_folder_is_made_for_us_alone() {
    let dir = private_folder();
    let at = Location {
        path: dir.path().join("heddle-1/heddle.sock"),
        ..Location::new(None)
    };
    let _socket = AdminSocket::bind(&at).expect("bound");
    let mode = fs::metadata(dir.path().join("heddle-1"))
        .expect("there")
        .permissions()
        .mode();
    assert_eq!(mode & 0o777, 0o700);
}

#[test]
fn a_folder_that_others_can_write_is_refused() {
    let dir = private_folder();
    let folder = dir.path().join("open");
    fs::create_dir(&folder).expect("a folder");
    let mode = |mode| fs::set_permissions(&folder, Permissions::from_mode(mode)).expect("a mode");
    let bind = |is_given| {
        AdminSocket::bind(&Location {
            path: folder.join("s"),
            is_given,
            ..Location::new(None)
        })
    };
    mode(0o777);
    assert!(matches!(bind(true), Err(SocketError::Unsafe(..))));
    // Like /tmp: others may add files but not replace ours.
    mode(0o1777);
    assert!(bind(true).is_ok());
    // Our default folder must not be accessible to other users.
    mode(0o755);
    assert!(matches!(bind(false), Err(SocketError::Unsafe(..))));
    std::os::unix::fs::symlink(&folder, dir.path().join("link")).expect("a link");
    mode(0o700);
    let linked = Location {
        path: dir.path().join("link/s"),
        ..Location::new(None)
    };
    assert!(matches!(
        AdminSocket::bind(&linked),
        Err(SocketError::Unsafe(..))
    ));
}

#[test]
fn a_socket_without_a_process_is_told_from_a_refusal() {
    let dir = private_folder();
    let at = given(dir.path().join("none.sock"));
    assert!(matches!(
        get(&at, "/status"),
        Err(ClientError::NotRunning(..))
    ));
}

#[test]
fn a_socket_of_another_user_is_told_from_none() {
    // Tests may run as root, which is never denied: the kernel's error is passed in here.
    let at = given("/run/theirs.sock".into());
    let denied = not_connected(at.clone(), io::ErrorKind::PermissionDenied.into());
    assert!(matches!(denied, ClientError::Denied(..)), "{denied}");
    let said = denied.to_string();
    assert!(
        said.contains("another user") && !said.contains("start one"),
        "{said}"
    );
    let none = not_connected(at, io::ErrorKind::NotFound.into());
    assert!(none.to_string().contains("start one"), "{none}");
}

#[test]
fn a_folder_that_cannot_be_used_has_a_remedy() {
    let dir = private_folder();
    let missing = given(dir.path().join("no/such/heddle.sock"));
    let error = AdminSocket::bind(&missing).expect_err("no folder");
    let said = error.to_string();
    assert!(
        said.ends_with("; choose another folder with --socket"),
        "{said}"
    );
}

#[test]
fn a_given_path_wins_over_the_default() {
    let at = Location::new(Some("/run/x.sock".into()));
    assert_eq!(
        (at.path.as_path(), at.is_given),
        (Path::new("/run/x.sock"), true)
    );
    let default = Location::new(None);
    assert!(default.path.ends_with("heddle.sock") && !default.is_given);
    let control = Location::control(None);
    assert!(control.path.ends_with("heddle-control.sock") && !control.is_given);
}

/// A session's folder ends with the session: a service of root has its sockets elsewhere.
#[test]
fn roots_sockets_are_where_every_session_finds_them() {
    let folder = |user, runtime: Option<&str>| {
        let user = rustix::process::Uid::from_raw(user);
        default_folder(user, runtime.map(Into::into))
    };
    for (user, runtime, expected) in [
        (0, None, "/run/heddle"),
        (0, Some("/run/user/0"), "/run/heddle"),
        (0, Some("/srv/own"), "/srv/own"),
        (1000, Some("/run/user/1000"), "/run/user/1000"),
        (1000, Some("not/absolute"), "/tmp/heddle-1000"),
        (1000, None, "/tmp/heddle-1000"),
    ] {
        assert_eq!(
            folder(user, runtime),
            Path::new(expected),
            "{user}, {runtime:?}"
        );
    }
}
