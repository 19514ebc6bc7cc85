use std::io::{self, Write};
use std::net::SocketAddr;
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use super::clock::Clock;
use super::record::MAX_LINE;
use super::{AccessLog, Record, Target};
use crate::{Registry, Reporter, Tls};

const LONG: Duration = Duration::from_secs(20);

fn record(path: &[u8]) -> Record<'_> {
    Record {
        unix_ms: 1_767_225_600_042,
        reporter: Reporter::Source,
        source: "shop/web",
        source_principal: "spiffe://cluster.local/ns/shop/sa/web",
        client: SocketAddr::from(([10, 0, 0, 7], 40_000)),
        destination_workload: "shop/reviews-1",
        tls: Tls::Mutual,
        protocol: "http/1.1",
        authority: b"user:p@ssword@reviews:9080",
        destination_service: "shop/reviews",
        route: "shop/split",
        method: b"GET",
        path,
        status: 200,
        reason: "ok",
        blame: "",
        duration_us: 420,
        upstream: Some(SocketAddr::from(([127, 0, 0, 1], 9080))),
        request_bytes: 0,
        response_bytes: 128,
        attempts: 1,
    }
}

#[test]
fn a_line_has_every_field_and_no_query() {
    let mut line = Vec::new();
    record(b"/reviews/0?token=secret").write(&mut line, &mut Clock::new(), "edge-1");
    let expected = concat!(
        r#"{"time":"2026-01-01T00:00:00.042Z","node":"edge-1","reporter":"source","#,
        r#""source":"shop/web","source_principal":"spiffe://cluster.local/ns/shop/sa/web","#,
        r#""client":"10.0.0.7:40000","destination_service":"shop/reviews","#,
        r#""destination_workload":"shop/reviews-1","upstream":"127.0.0.1:9080","tls":"mutual","#,
        r#""route":"shop/split","protocol":"http/1.1","authority":"reviews:9080","method":"GET","#,
        r#""path":"/reviews/0","status":200,"reason":"ok","blame":"","duration_us":420,"#,
        r#""request_bytes":0,"response_bytes":128,"attempts":1}"#,
        "\n"
    );
    assert_eq!(String::from_utf8_lossy(&line), expected);
}

#[test]
fn the_worst_record_stays_within_the_longest_line() {
    let hostile = vec![0xff; 100_000];
    let name = "\u{1}".repeat(10_000);
    let widest = "[ffff:ffff:ffff:ffff:ffff:ffff:ffff:ffff%4294967295]:65535"
        .parse()
        .expect("an address");
    let worst = Record {
        unix_ms: u64::MAX,
        reporter: Reporter::Destination,
        source: &name,
        source_principal: &name,
        client: widest,
        destination_workload: &name,
        tls: Tls::Mutual,
        protocol: &name,
        authority: &hostile,
        destination_service: &name,
        route: &name,
        method: &hostile,
        path: &hostile,
        status: u16::MAX,
        reason: &name,
        blame: &name,
        duration_us: u64::MAX,
        upstream: Some(widest),
        request_bytes: u64::MAX,
        response_bytes: u64::MAX,
        attempts: u32::MAX,
    };
    let mut line = Vec::new();
    worst.write(&mut line, &mut Clock::new(), &name);
    assert!(line.len() <= MAX_LINE, "{} bytes", line.len());
    let parsed: serde_json::Value = serde_json::from_slice(&line).expect("JSON");
    assert_eq!(parsed["attempts"], u32::MAX);
}

#[test]
fn a_path_is_whole_up_to_a_kibibyte() {
    let logged = |path: &[u8]| {
        let mut line = Vec::new();
        record(path).write(&mut line, &mut Clock::new(), "edge-1");
        let line: serde_json::Value = serde_json::from_slice(&line).expect("JSON");
        line["path"].as_str().expect("text").to_owned()
    };
    let path = "/".repeat(1_024);
    assert_eq!(logged(path.as_bytes()), path);
    // The query does not count.
    assert_eq!(logged(format!("{path}?more").as_bytes()), path);
    assert_eq!(logged(format!("{path}x").as_bytes()), format!("{path}…"));
}

/// A disk that writes one chunk for each message on `turns`.
struct Gated {
    turns: Receiver<()>,
    written: SyncSender<Vec<u8>>,
}

impl Write for Gated {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.turns.recv().map_err(io::Error::other)?;
        self.written
            .send(bytes.to_vec())
            .map_err(io::Error::other)?;
        Ok(bytes.len())
    }
    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

#[test]
fn a_stuck_disk_costs_lines_and_nothing_else() {
    let (turn, turns) = sync_channel(64);
    let (written, chunks) = sync_channel(64);
    let out = Box::new(Gated { turns, written });
    let log = AccessLog::start(out, Target::Stdout, "edge-1").expect("a thread");
    let registry = Registry::new();
    let stats = registry.worker(&[]);
    let mut sink = log.sink(stats.clone());

    let total = 1_000;
    for _ in 0..total {
        sink.record(&record(b"/"));
    }
    let dropped = stats.access_log_dropped.get();
    assert!(dropped > 0, "four buffers cannot hold {total} lines");

    // The disk works again: the queued lines are written, and there is room for new ones.
    for _ in 0..64 {
        turn.send(()).expect("the writer waits");
    }
    assert!(log.wait_written(LONG));
    sink.record(&record(b"/later"));
    assert_eq!(stats.access_log_dropped.get(), dropped);
    drop(sink);
    assert!(log.wait_written(LONG));
    let lines: usize = chunks
        .try_iter()
        .map(|c| c.iter().filter(|b| **b == b'\n').count())
        .sum();
    assert_eq!(lines as u64 + dropped, total + 1);
}

/// A disk with limited room. Bytes that do not fit are refused, which may cut a line.
#[derive(Clone, Default)]
struct Small(Arc<Mutex<Disk>>);

#[derive(Default)]
struct Disk {
    room: usize,
    bytes: Vec<u8>,
}

impl Small {
    fn with<T>(&self, look: impl FnOnce(&mut Disk) -> T) -> T {
        look(&mut self.0.lock().expect("no panic"))
    }
}

impl Write for Small {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.with(|disk| {
            let n = bytes.len().min(disk.room);
            if n == 0 {
                return Err(io::ErrorKind::StorageFull.into());
            }
            disk.room -= n;
            disk.bytes.extend_from_slice(&bytes[..n]);
            Ok(n)
        })
    }
    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

#[test]
fn a_full_disk_costs_lines_that_are_counted_and_no_line_after_them() {
    let mut line = Vec::new();
    record(b"/").write(&mut line, &mut Clock::new(), "edge-1");
    let disk = Small::default();
    // Room for two and a half lines.
    disk.with(|disk| disk.room = line.len() * 5 / 2);
    let log = AccessLog::start(Box::new(disk.clone()), Target::Stdout, "edge-1").expect("a thread");
    let registry = Registry::new();
    let mut sink = log.sink(registry.worker(&[]));
    let mut write = |lines: usize| {
        for _ in 0..lines {
            sink.record(&record(b"/"));
        }
        sink.flush();
        assert!(log.wait_written(LONG));
    };
    let lost = || {
        let mut text = String::new();
        registry.render(&mut text);
        let found = text.lines().find_map(|line| {
            line.strip_prefix("heddle_access_log_dropped_total{worker=\"0\"} ")?
                .parse::<u64>()
                .ok()
        });
        found.expect("a count")
    };

    write(4);
    assert_eq!(lost(), 2, "the one that was cut and the one after it");
    write(3);
    assert_eq!(lost(), 5);
    disk.with(|disk| disk.room = usize::MAX);
    write(2);
    write(1);
    assert_eq!(lost(), 5);

    let text = disk.with(|disk| String::from_utf8(disk.bytes.clone()).expect("UTF-8"));
    let whole = |line: &&str| serde_json::from_str::<serde_json::Value>(line).is_ok();
    let lines: Vec<&str> = text.lines().collect();
    let (whole, cut): (Vec<&str>, Vec<&str>) = lines.into_iter().partition(whole);
    assert_eq!((whole.len(), cut.len()), (5, 1), "{text}");
    assert!(text.ends_with('\n'));
}

#[test]
fn a_renamed_file_is_left_behind_on_request() {
    let dir = tempfile::tempdir().expect("a folder");
    let (path, rotated) = (
        dir.path().join("access.log"),
        dir.path().join("access.log.1"),
    );
    let log = AccessLog::open(Target::File(path.clone()), "edge-1").expect("a log");
    let registry = Registry::new();
    let mut sink = log.sink(registry.worker(&[]));

    assert!(!sink.has_lines());
    sink.record(&record(b"/before"));
    assert!(sink.has_lines());
    sink.flush();
    assert!(!sink.has_lines());
    assert!(log.wait_written(LONG));
    std::fs::rename(&path, &rotated).expect("renamed");
    log.reopen();
    sink.record(&record(b"/after"));
    sink.flush();
    assert!(log.wait_written(LONG));

    let read = |path| std::fs::read_to_string(path).expect("a file");
    assert!(read(&rotated).contains("/before") && !read(&rotated).contains("/after"));
    assert!(read(&path).contains("/after"));
}

#[test]
fn a_path_that_cannot_be_opened_is_an_error() {
    let target = Target::File("/proc/no/such/folder/access.log".into());
    assert!(AccessLog::open(target, "").is_err());
}

/// Nothing is buffered, allocated or started before there is a target, and the target may change.
#[test]
fn a_log_goes_from_one_target_to_another_and_off() {
    let dir = tempfile::tempdir().expect("a folder");
    let (one, other) = (dir.path().join("one"), dir.path().join("other"));
    let log = AccessLog::off("edge-1");
    let registry = Registry::new();
    let mut sink = log.sink(registry.worker(&[]));
    assert!(!sink.is_on());
    let mut write = |target: &[u8]| {
        sink.record(&record(target));
        sink.flush();
        assert!(log.wait_written(LONG));
        sink.is_on()
    };
    log.write_to(Some(Target::File(one.clone())))
        .expect("opened");
    assert!(write(b"/one"));
    let missing = Target::File("/proc/no/such/folder/access.log".into());
    assert!(log.write_to(Some(missing)).is_err());
    assert!(write(b"/still"));
    log.write_to(Some(Target::File(other.clone())))
        .expect("opened");
    log.reopen();
    assert!(write(b"/other"));
    log.write_to(None).expect("off");
    assert!(!write(b"/buffered"));
    log.write_to(Some(Target::File(one.clone())))
        .expect("opened");
    assert!(write(b"/again"));

    let read = |path| std::fs::read_to_string(path).expect("a file");
    let has = |text: &str, all: [&str; 3]| all.iter().all(|one| text.contains(one));
    assert!(has(&read(&one), ["/one", "/still", "/again"]));
    assert!(has(&read(&other), ["/other", "/buffered", "/"]));
    assert!(!read(&one).contains("/other") && !read(&other).contains("/again"));
}
