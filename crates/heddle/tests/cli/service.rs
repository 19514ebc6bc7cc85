//! Under a service manager: what systemd is told, and the units in `packaging/systemd`.

use std::fs;
use std::os::unix::net::UnixDatagram;
use std::path::Path;

use rustix::process::Signal;

use crate::harness::{
    Folder, Heddle, LONG, as_str, backend, eventually, get, heddle, service, text,
};

/// Reads messages until one is `wanted`.
fn told(socket: &UnixDatagram, wanted: &str) {
    let mut message = [0; 256];
    loop {
        let length = socket.recv(&mut message).expect("a message in time");
        if message[..length].trim_ascii_end() == wanted.as_bytes() {
            return;
        }
    }
}

#[test]
fn systemd_is_told_that_a_process_is_ready_goes_on_and_stops() {
    let folder = Folder::new();
    folder.write("a.yaml", &service("told", "web", backend("web")));
    let path = folder.path("notify");
    let socket = UnixDatagram::bind(&path).expect("bound");
    socket.set_read_timeout(Some(LONG)).expect("a timeout");
    let environment = [
        ("NOTIFY_SOCKET", as_str(&path)),
        ("WATCHDOG_USEC", "3000000"),
    ];
    let node = Heddle::up_with(&folder, &environment, &[]);
    told(&socket, "READY=1");
    for _ in 0..2 {
        told(&socket, "WATCHDOG=1");
    }
    node.signal(Signal::TERM);
    told(&socket, "STOPPING=1");
    assert_eq!(node.ended().code(), Some(0));
    let state = folder.path("state");
    let flags = ["--listen", "127.0.0.1:0", "--state", as_str(&state)];
    let control = Heddle::control_with(&folder, &environment, &flags);
    told(&socket, "READY=1");
    told(&socket, "WATCHDOG=1");
    control.signal(Signal::TERM);
    told(&socket, "STOPPING=1");
    assert_eq!(control.ended().code(), Some(0));
}

/// Each starts a command line that is accepted, which then misses its settings.
#[test]
fn each_unit_starts_a_command() {
    let folder = Folder::new();
    let units = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../packaging/systemd");
    let mut seen = 0;
    for unit in fs::read_dir(units).expect("the units") {
        let unit = fs::read_to_string(unit.expect("a file").path()).expect("read");
        let line = unit
            .lines()
            .find_map(|line| line.strip_prefix("ExecStart="));
        let line = line.expect("a command");
        let arguments = line.strip_prefix("/usr/local/bin/heddle ").expect("heddle");
        let etc = folder.path("etc");
        let arguments = arguments.replace("/etc/heddle", as_str(&etc));
        let output = heddle(&arguments.split(' ').collect::<Vec<_>>());
        let said = text(&output.stderr);
        assert_eq!(output.status.code(), Some(3), "{line}: {said}");
        assert!(said.contains("etc/heddle.yaml: "), "{line}: {said}");
        seen += 1;
    }
    assert_eq!(seen, 3);
}

/// The settings that the page shows are valid, each for itself.
#[test]
fn the_settings_of_the_page_are_valid() {
    let page = include_str!("../../../../docs/operations.md");
    let (_, section) = page.split_once("\n## As a service\n").expect("a section");
    let (section, _) = section.split_once("\n## ").expect("its end");
    let blocks = section.split("```yaml\n").skip(1);
    let blocks: Vec<&str> = blocks.filter_map(|rest| rest.split("```").next()).collect();
    assert_eq!(blocks.len(), 2);
    let folder = Folder::new();
    let config = folder.path("heddle.yaml");
    for block in blocks {
        fs::write(&config, block).expect("written");
        let output = heddle(&["validate", "--config", as_str(&config)]);
        let said = text(&output.stdout) + &text(&output.stderr);
        assert_eq!(output.status.code(), Some(0), "{block}: {said}");
    }
}

#[test]
fn logs_change_while_a_process_runs() {
    let folder = Folder::new();
    folder.write("a.yaml", &service("logs", "web", backend("web")));
    let (config, log) = (folder.path("s.yaml"), folder.path("access.log"));
    let write = |text: &str| fs::write(&config, text).expect("written");
    write("log: {level: warn}\n");
    let node = Heddle::up(&folder, &["--config", as_str(&config)]);
    let web = node.address("logs/web", None);
    let lines = || fs::read_to_string(&log).unwrap_or_default().lines().count();
    assert_eq!(get(web, "web.logs", "/").0, 200);

    let path = log.display();
    write(&format!(
        "log: {{level: info}}\naccess_log: {{path: {path}}}\nproxy: {{workers: {{steal: false}}}}\n"
    ));
    node.signal(Signal::HUP);
    node.stderr_line("the level of this log is another from now on");
    node.stderr_line("take effect at the next start");
    assert_eq!(get(web, "web.logs", "/").0, 200);
    eventually("the request is logged", || lines() == 1);

    // What is wrong changes nothing, and the file is reopened all the same.
    fs::rename(&log, folder.path("access.log.1")).expect("renamed");
    write("log: {level: loud}\n");
    node.signal(Signal::HUP);
    node.stderr_line("the settings stay as they were");
    node.stderr_line("the access log was reopened");
    assert_eq!(get(web, "web.logs", "/").0, 200);
    eventually("the request is logged", || lines() == 1);

    write("log: {level: debug}\n");
    node.signal(Signal::HUP);
    node.stderr_line("the level of this log is another from now on");
    assert_eq!(get(web, "web.logs", "/").0, 200);
    node.signal(Signal::TERM);
    assert_eq!(node.ended().code(), Some(0));
    assert_eq!(lines(), 1, "the access log is off");
}
