//! How programs see the end of their streams when the proxy that carries them is killed.

use std::fs::{self, File};
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::{Child, Stdio};

use heddle_lab::lab::Family;
use rustix::process::{Signal, kill_process};

use crate::deaths::{holder, proxy_of};
use crate::load::told;
use crate::stage::{Scene, Stage, until};

/// Number of streams of each client.
const STREAMS: usize = 15;

/// A client with all its streams open.
struct Client {
    child: Child,
    file: PathBuf,
}

impl Client {
    fn start(stage: &Stage, pod: &str, to: SocketAddr) -> Client {
        let file = stage.folder().join(format!("streams-{pod}"));
        let mut command = stage.own(pod, &format!("hold {STREAMS} {to}"));
        command.stdout(File::create(&file).expect("a file"));
        let child = command.stdin(Stdio::null()).spawn().expect("runs");
        let client = Client { child, file };
        until("all are open", || ends(&client.file) == ["held"]);
        client
    }
}

impl Drop for Client {
    fn drop(&mut self) {
        let _ended = self.child.kill();
        let _reaped = self.child.wait();
    }
}

/// The ends of streams that a program has reported so far.
fn ends(file: &Path) -> Vec<String> {
    let text = fs::read_to_string(file).unwrap_or_default();
    told(&text).into_iter().map(ToOwned::to_owned).collect()
}

#[test]
fn every_stream_that_a_killed_proxy_carried_ends_by_a_reset() {
    let scene = Scene::default()
        .pod("near", "one")
        .pod("far", "two")
        .pod("store", "one")
        .service("store", "{name: tcp-store, port: 7001}");
    let Some(stage) = scene.up() else { return };
    for pod in ["near", "far", "store"] {
        stage.until_served(pod);
    }
    // Given streams within one node and between the nodes, whose data was all read …
    let command = stage.own("store", "keep [::]:7001");
    let _server = stage.serve_by("store", 7001, command);
    let to = SocketAddr::new(stage.cluster_address("store", Family::V4), 7001);
    let clients = ["near", "far"].map(|pod| Client::start(&stage, pod, to));
    // … when the proxy of the server's node is killed …
    let holder = holder(&stage);
    kill_process(proxy_of(holder).expect("a proxy"), Signal::KILL).expect("killed");
    // … then each of them is reset at both ends.
    let server = stage.folder().join("store.log");
    until("the server's end", || ends(&server).len() == 2 * STREAMS);
    assert_eq!(ends(&server), ["a reset"; 2 * STREAMS]);
    for client in &clients {
        until("the clients' end", || {
            ends(&client.file).len() == 1 + STREAMS
        });
        assert_eq!(ends(&client.file)[1..], ["a reset"; STREAMS]);
    }
}
