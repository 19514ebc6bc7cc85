//! How the process ends, and what it leaves behind.

use std::fs::File;
use std::io::Write;
use std::net::TcpStream;
use std::process::Command;
use std::time::{Duration, Instant};

use rustix::process::Signal;

use crate::harness::{
    Folder, Heddle, LONG, answer, as_str, backend, eventually, get, heddle, held_backend, service,
    text,
};

#[test]
fn sigterm_lets_a_request_finish_and_takes_no_new_one() {
    let folder = Folder::new();
    let (address, requests, go) = held_backend();
    folder.write("a.yaml", &service("drain", "web", address));
    let heddle = Heddle::up(&folder, &[]);
    let address = heddle.address("drain/web", None);

    let mut client = TcpStream::connect(address).expect("connected");
    client
        .write_all(b"GET / HTTP/1.1\r\nhost: web\r\nconnection: close\r\n\r\n")
        .expect("sent");
    requests
        .recv_timeout(LONG)
        .expect("the request reaches the backend");

    heddle.signal(Signal::TERM);
    heddle.stderr_line("stopping");
    eventually("no client is let in any more", || {
        TcpStream::connect(address).is_err()
    });
    let status = heddle.status();
    assert_eq!(
        (&status["draining"], &status["ready"]),
        (&true.into(), &false.into())
    );
    assert_eq!(status["drain"]["connections"], 1);
    let left = status["drain"]["left_ms"].as_u64().expect("a number");
    assert!(left > 0 && left <= 10_000, "{left}");
    assert_eq!(status["proxy"]["workers"][0]["requests_active"], 1);
    assert_eq!(status["workloads"][0]["name"], "drain/web");
    let shown = crate::harness::heddle(&["status", "--socket", as_str(&folder.socket())]);
    let shown = text(&shown.stdout);
    assert!(
        shown.contains("draining: waiting for 1 connection, "),
        "{shown}"
    );
    let (status, _) = get(heddle.metrics(), "x", "/ready");
    assert_eq!(status, 503);

    go.send(()).expect("the backend waits");
    assert_eq!(answer(client), (200, "held".into()));
    assert_eq!(heddle.ended().code(), Some(0));
    assert!(!folder.socket().exists());
}

#[test]
fn a_drain_is_bounded_by_its_setting() {
    let folder = Folder::new();
    let (address, requests, _go) = held_backend();
    folder.write("a.yaml", &service("bounded", "web", address));
    let settings = folder.path("heddle.yaml");
    std::fs::write(&settings, "drain: {timeout_ms: 50}\n").expect("written");
    let heddle = Heddle::up(&folder, &["--config", as_str(&settings)]);
    let address = heddle.address("bounded/web", None);
    let mut client = TcpStream::connect(address).expect("connected");
    client
        .write_all(b"GET / HTTP/1.1\r\nhost: web\r\n\r\n")
        .expect("sent");
    requests
        .recv_timeout(LONG)
        .expect("the request reaches the backend");

    heddle.signal(Signal::INT);
    heddle.stderr_line("were cut");
    assert_eq!(heddle.ended().code(), Some(0));
}

#[test]
fn a_second_signal_ends_it_at_once() {
    let folder = Folder::new();
    let (address, requests, _go) = held_backend();
    folder.write("a.yaml", &service("twice", "web", address));
    let settings = folder.path("heddle.yaml");
    std::fs::write(&settings, "drain: {timeout_ms: 3600000}\n").expect("written");
    let heddle = Heddle::up(&folder, &["--config", as_str(&settings)]);
    let address = heddle.address("twice/web", None);
    let mut client = TcpStream::connect(address).expect("connected");
    client
        .write_all(b"GET / HTTP/1.1\r\nhost: web\r\n\r\n")
        .expect("sent");
    requests
        .recv_timeout(LONG)
        .expect("the request reaches the backend");

    // Two signals at the same time count as one: a service manager's, and the same passed on by a parent process.
    heddle.signal(Signal::TERM);
    heddle.stderr_line("stopping");
    heddle.signal(Signal::TERM);
    // Longer than the window in which two signals count as one: nothing ends within this time.
    std::thread::park_timeout(Duration::from_millis(700));
    assert!(heddle.status()["draining"].as_bool().unwrap_or_default());
    heddle.signal(Signal::TERM);
    assert_eq!(heddle.ended().code(), Some(1));
}

#[test]
fn a_second_instance_on_the_same_socket_is_refused() {
    let folder = Folder::new();
    folder.write("a.yaml", &service("second", "web", backend("x")));
    let first = Heddle::up(&folder, &[]);
    let second = heddle(&[
        "up",
        as_str(&folder.manifests()),
        "--socket",
        as_str(&folder.socket()),
        "--metrics",
        "none",
    ]);
    assert_eq!(second.status.code(), Some(5));
    assert!(
        text(&second.stderr).contains("--socket"),
        "{}",
        text(&second.stderr)
    );
    assert_eq!(first.status()["ready"], true);
}

#[test]
fn a_killed_one_leaves_nothing_that_stops_the_next() {
    let folder = Folder::new();
    folder.write("a.yaml", &service("killed", "web", backend("x")));
    let first = Heddle::up(&folder, &[]);
    let address = first.address("killed/web", None);
    first.signal(Signal::KILL);
    first.ended();
    assert!(folder.socket().exists(), "it had no time to clean up");
    let next = Heddle::up(&folder, &[]);
    assert_eq!(next.address("killed/web", None), address);
    assert_eq!(get(address, "web", "/"), (200, "x".into()));
}

#[test]
fn sighup_opens_the_access_log_anew() {
    let folder = Folder::new();
    folder.write("a.yaml", &service("rotate", "web", backend("x")));
    let (log, rotated) = (folder.path("access.log"), folder.path("access.log.1"));
    let heddle = Heddle::up(&folder, &["--access-log", as_str(&log)]);
    let address = heddle.address("rotate/web", None);
    let holds =
        |path, what: &str| std::fs::read_to_string(path).is_ok_and(|text| text.contains(what));

    get(address, "web", "/before");
    eventually("it is logged", || holds(&log, "/before"));
    std::fs::rename(&log, &rotated).expect("renamed");
    heddle.signal(Signal::HUP);
    heddle.stderr_line("the access log was reopened");
    get(address, "web", "/after");
    eventually("it is logged in the new file", || holds(&log, "/after"));
    assert!(!holds(&rotated, "/after"));
}

/// Resident memory of mapped files, such as the program, in KiB.
fn of_files_kib(heddle: &Heddle) -> u64 {
    let status =
        std::fs::read_to_string(format!("/proc/{}/status", heddle.pid())).expect("it runs");
    let line = status
        .lines()
        .find_map(|line| line.strip_prefix("RssFile:"));
    let kib = line.and_then(|line| line.trim().strip_suffix(" kB"));
    kib.and_then(|kib| kib.parse().ok()).expect("a number")
}

#[test]
fn pages_of_the_program_that_only_its_start_took_are_given_back() {
    let folder = Folder::new();
    folder.write("a.yaml", &service("pages", "web", backend("ok")));
    let heddle = Heddle::start(&folder, &[]);
    let (mut most, mut now) = (0, 0);
    eventually("pages are given back", || {
        now = of_files_kib(&heddle);
        most = most.max(now);
        now < most / 4 * 3
    });
    // The pages are mapped again when they run.
    assert_eq!(get(heddle.address("pages/web", None), "web", "/").0, 200);
}

#[test]
fn a_full_disk_is_said_and_counted_and_so_is_its_end() {
    let folder = Folder::new();
    folder.write("a.yaml", &service("full", "web", backend("x")));
    let log = folder.path("access.log");
    std::os::unix::fs::symlink("/dev/full", &log).expect("a link");
    let heddle = Heddle::up(&folder, &["--access-log", as_str(&log)]);
    let address = heddle.address("full/web", None);
    assert_eq!(get(address, "web", "/lost"), (200, "x".into()));
    heddle.stderr_line("cannot write the access log");
    let metrics = heddle.metrics();
    eventually("the line is counted", || {
        let (_, metrics) = get(metrics, "x", "/metrics");
        metrics.contains("heddle_access_log_dropped_total{worker=\"0\"} 1\n")
    });

    std::fs::remove_file(&log).expect("removed");
    heddle.signal(Signal::HUP);
    heddle.stderr_line("the access log was reopened");
    get(address, "web", "/kept");
    let line = heddle.stderr_line("the access log is written again");
    assert!(line.contains("lost=1"), "{line}");
    eventually("it is logged", || {
        std::fs::read_to_string(&log).is_ok_and(|text| text.contains("/kept"))
    });
}

#[test]
fn a_log_that_nothing_reads_delays_the_end_by_three_seconds_at_most() {
    let folder = Folder::new();
    folder.write("a.yaml", &service("unread", "web", backend("x")));
    let pipe = folder.path("pipe");
    let made = Command::new("mkfifo").arg(&pipe).status();
    assert!(made.expect("mkfifo runs").success());
    let mut both = File::options();
    let _unread = both.read(true).write(true).open(&pipe).expect("opened");
    let heddle = Heddle::up(&folder, &["--access-log", as_str(&pipe)]);
    let address = heddle.address("unread/web", None);
    // More lines than the pipe has room for.
    for _ in 0..600 {
        assert_eq!(get(address, "web", "/").0, 200);
    }
    heddle.signal(Signal::TERM);
    let told = Instant::now();
    assert_eq!(heddle.ended().code(), Some(0));
    let took = told.elapsed();
    assert!(took < Duration::from_secs(4), "{took:?}");
}
