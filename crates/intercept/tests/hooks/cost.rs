//! What hooks cost. Figures, not verdicts: `cargo test -p heddle-intercept --release --test hooks cost -- --ignored
//! --nocapture`.

use std::net::{SocketAddr, TcpListener};
use std::os::fd::AsFd;
use std::time::{Duration, Instant};

use heddle_intercept::{Family, Fate};
use rustix::net::{SocketType, sockopt};

use crate::stage::{Pod, Stage, ip, on_stage};

/// Connections of each kind and round, and rounds.
const CONNECTIONS: usize = 2_000;
const ROUNDS: usize = 5;

/// The median of the time that `connect` takes, in microseconds, and of a whole round the best.
fn connects(stage: &Stage, pod: &Pod, to: &str, listener: &TcpListener) -> f64 {
    let to: SocketAddr = to.parse().unwrap();
    let mut times = Vec::with_capacity(CONNECTIONS);
    for _ in 0..CONNECTIONS {
        let socket = stage
            .apps
            .socket(pod.netns.as_fd(), Family::of(to), SocketType::STREAM, 0);
        let socket = socket.unwrap();
        let before = Instant::now();
        rustix::net::connect(&socket, &to).unwrap();
        times.push(before.elapsed());
        sockopt::set_socket_linger(&socket, Some(Duration::ZERO)).unwrap();
        while listener.accept().is_ok() {}
    }
    times.sort_unstable();
    times[CONNECTIONS / 2].as_secs_f64() * 1e6
}

#[test]
#[ignore = "a measurement"]
fn of_a_connect() {
    on_stage(|stage| {
        let (pod, other) = (stage.pod(1), stage.pod(2));
        let within = stage.serve(&other, "127.0.0.1:80");
        let enrolled = stage.serve(&pod, "127.0.0.1:80");
        let node = TcpListener::bind("10.90.2.1:80").unwrap();
        node.set_nonblocking(true).unwrap();
        ip("address add 10.111.0.1/32 dev lo");
        let outside = TcpListener::bind("10.111.0.1:80").unwrap();
        outside.set_nonblocking(true).unwrap();
        let best = |measure: &dyn Fn() -> f64| {
            (0..ROUNDS).map(|_| measure()).fold(f64::INFINITY, f64::min)
        };
        let lo = |pod, listener| best(&|| connects(stage, pod, "127.0.0.1:80", listener));
        let veth = |pod| best(&|| connects(stage, pod, "10.111.0.1:80", &outside));
        println!("connect, median of {CONNECTIONS}, best of {ROUNDS} rounds, in µs");
        println!("{:6.2}  no hooks, within the pod", lo(&other, &within));
        println!("{:6.2}  no hooks, to the node", veth(&other));
        let mut hooks = stage.hooks();
        println!(
            "{:6.2}  hooks, a pod that is not enrolled, within it",
            lo(&other, &within)
        );
        println!(
            "{:6.2}  hooks, a pod that is not enrolled, to the node",
            veth(&other)
        );
        pod.enrol(&mut hooks);
        hooks.serve(pod.id, Fate::Refuse).unwrap();
        println!(
            "{:6.2}  hooks, an enrolled pod, within it",
            lo(&pod, &enrolled)
        );
        println!(
            "{:6.2}  hooks, an enrolled pod, to the node, outside of the mesh",
            veth(&pod)
        );
        let steered = best(&|| connects(stage, &pod, "10.96.0.1:80", &pod.outbound));
        println!("{steered:6.2}  hooks, an enrolled pod, to the mesh: steered to its listener");
    });
}

#[test]
#[ignore = "a measurement"]
fn of_two_hundred_pods() {
    on_stage(|stage| {
        let memory = || {
            let text = std::fs::read_to_string("/proc/self/status").unwrap();
            let line = text
                .lines()
                .find_map(|line| line.strip_prefix("VmRSS:"))
                .unwrap();
            line.trim().trim_end_matches(" kB").parse::<i64>().unwrap()
        };
        // What the kernel charges for tables, as it says of their descriptors.
        let tables = || {
            let entries = std::fs::read_dir("/proc/self/fdinfo").unwrap();
            let infos =
                entries.filter_map(|entry| std::fs::read_to_string(entry.ok()?.path()).ok());
            let bytes = infos.filter_map(|info| {
                let line = info
                    .lines()
                    .find_map(|line| line.strip_prefix("memlock:"))?;
                line.trim().parse::<i64>().ok()
            });
            bytes.sum::<i64>() / 1024
        };
        let before = memory();
        let mut hooks = stage.hooks();
        println!(
            "hooks: {} KiB of the process, {} KiB of tables",
            memory() - before,
            tables()
        );
        let pods: Vec<_> = (1..=200).map(|number| stage.pod(number)).collect();
        let (process, kernel) = (memory(), tables());
        let started = Instant::now();
        for pod in &pods {
            pod.enrol(&mut hooks);
        }
        let each = started.elapsed() / 200;
        println!(
            "each pod: {:.2} KiB of the process, {:.2} KiB of tables, {each:.0?} to enrol",
            (memory() - process) as f64 / 200.0,
            (tables() - kernel) as f64 / 200.0,
        );
        let started = Instant::now();
        hooks.died().unwrap();
        println!("the proxy's death, for all: {:.1?}", started.elapsed());
    });
}
