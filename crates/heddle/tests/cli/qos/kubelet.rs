//! `heddle qos run --kubelet`, with a server of this test in the kubelet's place.

use std::fs;
use std::io::{BufRead, BufReader, Write};
use std::net::TcpListener;
use std::process::{Child, Command, Stdio};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread;

use rustix::process::Signal;

use super::{Groups, signal};
use crate::harness::{as_str, eventually, heddle, text};

/// Answers every question with the list of pods of the moment.
struct Kubelet {
    url: String,
    pods: Arc<Mutex<Vec<String>>>,
}

impl Kubelet {
    fn start() -> Kubelet {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
        let url = format!("http://{}", listener.local_addr().expect("an address"));
        let pods = Arc::new(Mutex::new(Vec::new()));
        let listed = Arc::clone(&pods);
        // It ends with the test program.
        thread::spawn(move || {
            for stream in listener.incoming() {
                let mut stream = stream.expect("a connection");
                let lines = BufReader::new(&stream).lines();
                let head = lines.map_while(Result::ok);
                let _head = head.take_while(|line| !line.is_empty()).count();
                let pods: Vec<String> = {
                    let pods = listed.lock().unwrap_or_else(PoisonError::into_inner);
                    pods.clone()
                };
                let body = format!(r#"{{"kind":"PodList","items":[{}]}}"#, pods.join(","));
                let length = body.len();
                let _sent = write!(
                    stream,
                    "HTTP/1.1 200 OK\r\ncontent-length: {length}\r\n\r\n{body}"
                );
            }
        });
        Kubelet { url, pods }
    }

    fn list(&self, pods: &[String]) {
        let mut listed = self.pods.lock().unwrap_or_else(PoisonError::into_inner);
        *listed = pods.to_vec();
    }
}

/// A pod with its name as its UID.
fn pod(name: &str, annotation: &str, is_resizing: bool) -> String {
    let status = if is_resizing { "True" } else { "False" };
    format!(
        r#"{{"metadata":{{"uid":"{name}","namespace":"site","name":"{name}","annotations":{{{annotation}}}}},"status":{{"phase":"Running","conditions":[{{"type":"PodResizeInProgress","status":"{status}"}}]}}}}"#
    )
}

const OFFLINE: &str = r#""volcano.sh/preemptable":"true""#;

fn start(groups: &Groups, kubelet: &Kubelet) -> Child {
    let config = groups.folder.path("heddle.yaml");
    fs::write(&config, "qos: {kubelet: {interval_s: 1}}\n").expect("written");
    let mut command = Command::new(env!("CARGO_BIN_EXE_heddle"));
    command.args(["qos", "run", "--kubelet", &kubelet.url]);
    command.args(["--kubelet-cgroup-root", &format!("/{}", groups.name)]);
    command.args(["--config", as_str(&config)]);
    command.args(["--state", as_str(&groups.state())]);
    let command = command.stdout(Stdio::null()).stderr(Stdio::null());
    command.spawn().expect("started")
}

#[test]
fn pods_of_a_kubelet_are_preempted_let_go_of_for_a_resize_and_put_back() {
    let (batch, web) = ("kubepods/burstable/podbatch", "kubepods/burstable/podweb");
    let Some(groups) = Groups::new("kubelet", &[batch, web]) else {
        return;
    };
    let weight = groups.weight();
    let is_idle = |pod: &str| groups.read(pod, "cpu.idle") == "1";
    fs::write(groups.file(batch, weight), "200").expect("written");
    let kubelet = Kubelet::start();
    let others = pod("web", "", false);
    kubelet.list(&[pod("batch", OFFLINE, false), others.clone()]);
    let mut agent = start(&groups, &kubelet);
    eventually("the offline pod yields", || is_idle(batch));
    assert!(!is_idle(web));

    kubelet.list(&[pod("batch", OFFLINE, true), others.clone()]);
    // The weight is written after the group is not idle any more.
    eventually("it is let go of", || {
        !is_idle(batch) && groups.read(batch, weight) == "200"
    });
    fs::write(groups.file(batch, weight), "300").expect("the kernel takes a weight now");
    kubelet.list(&[pod("batch", OFFLINE, false), others.clone()]);
    eventually("it yields again", || is_idle(batch));

    let new = "kubepods/podnew";
    for root in &groups.roots {
        fs::create_dir(root.join(&groups.name).join(new)).expect("made");
    }
    let all = [
        pod("batch", OFFLINE, false),
        others,
        pod("new", OFFLINE, false),
    ];
    kubelet.list(&all);
    eventually("a new pod yields", || is_idle(new));
    let (_, said) = groups.ask("status");
    assert!(
        said.contains("site/new") && said.contains("site/batch"),
        "{said}"
    );
    assert!(!said.contains("site/web"), "{said}");

    signal(&agent, Signal::TERM);
    assert_eq!(agent.wait().expect("ended").code(), Some(0));
    assert!(!is_idle(batch) && !is_idle(new));
    assert_eq!(groups.read(batch, weight), "300");
}

#[test]
fn a_run_without_a_folder_and_a_kubelet_is_refused() {
    let output = heddle(&["qos", "run"]);
    let said = text(&output.stderr);
    assert_eq!(output.status.code(), Some(2), "{said}");
    assert!(said.contains("--kubelet URL"), "{said}");
    let output = heddle(&["qos", "run", "--kubelet", "http://10.0.0.1:10255"]);
    let said = text(&output.stderr);
    assert_eq!(output.status.code(), Some(2), "{said}");
    assert!(said.contains("use https"), "{said}");
    let output = heddle(&["qos", "run", "--kubelet-token", "x"]);
    let said = text(&output.stderr);
    assert_eq!(output.status.code(), Some(3), "{said}");
    assert!(said.contains("no kubelet to use it with"), "{said}");
}
