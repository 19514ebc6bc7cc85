//! Unmodified programs of Debian, Java and Go, which call Services by name.
//!
//! Servers are on node `one`. Clients are on the same node (`near`), on another (`far`), and on both with only IPv6
//! (`near6`, `far6`). All tests share a lab, which runs while one of them needs it.

mod files;
mod languages;
mod old;
mod shells;
mod stores;
mod trusting;
mod web;

use std::fs;
use std::sync::{Arc, Mutex, PoisonError, Weak};

use crate::stage::{Scene, Stage};

/// All calling pods.
const CLIENTS: [&str; 4] = ["near", "far", "near6", "far6"];

/// Ports on which an FTP server accepts data connections.
const FTP_DATA: [u16; 4] = [30_000, 30_001, 30_002, 30_003];

/// The lab. `None`, with a message, if no lab can run here.
fn stage() -> Option<Arc<Stage>> {
    static STAGE: Mutex<Weak<Stage>> = Mutex::new(Weak::new());
    let mut shared = STAGE.lock().unwrap_or_else(PoisonError::into_inner);
    if let Some(stage) = shared.upgrade() {
        return Some(stage);
    }
    let stage = Arc::new(scene().up()?);
    *shared = Arc::downgrade(&stage);
    Some(stage)
}

fn scene() -> Scene {
    let mut scene = Scene::default()
        .pod("near", "one")
        .pod("far", "two")
        .pod_of_six("near6", "one")
        .pod_of_six("far6", "two")
        .pod_of_six("web6", "one")
        .service_of_six("web6", "{port: 80, appProtocol: http}");
    for (name, port) in [
        ("web", "{port: 80, appProtocol: http}"),
        ("git", "{port: 80, appProtocol: http}"),
        ("old", "{port: 80, appProtocol: http}"),
        // Forwarded as bytes, because the port is declared so …
        ("redis", "{name: tcp-redis, port: 6379}"),
        // … or because the protocol is detected, also if the server speaks first or the bytes look like HTTP.
        ("memcached", "{port: 11211}"),
        ("postgres", "{port: 5432}"),
        ("ssh", "{port: 22}"),
        ("iperf", "{port: 5201}"),
        ("go", "{port: 8080}"),
        // Servers that authorise by the caller's address.
        ("imap", "{port: 143}"),
        ("smtp", "{name: tcp-smtp, port: 25}"),
        ("mariadb", "{port: 3306}"),
    ] {
        scene = scene.pod(name, "one").service(name, port);
    }
    let data = FTP_DATA.map(|port| format!(", {{name: tcp-{port}, port: {port}}}"));
    let ftp = format!("{{name: tcp-ftp, port: 21}}{}", data.concat());
    scene.pod("ftp", "one").headless("ftp", &ftp)
}

/// User and group without any files, which `root` becomes to run databases.
fn powerless() -> (u32, u32) {
    let users = fs::read_to_string("/etc/passwd").expect("users");
    let line = users.lines().find(|line| line.starts_with("postgres:"));
    let fields: Vec<&str> = line.unwrap_or("nobody:x:65534:65534").split(':').collect();
    let number = |at: usize| fields[at].parse().expect("a number");
    (number(2), number(3))
}
