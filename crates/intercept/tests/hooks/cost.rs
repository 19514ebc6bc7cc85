//! Measures the cost of hooks. It prints figures and asserts nothing: `cargo test -p heddle-intercept --release
//! --test hooks cost -- --ignored --nocapture`.

use std::net::{SocketAddr, TcpListener};
use std::os::fd::{AsFd, OwnedFd};
use std::time::{Duration, Instant};

use heddle_intercept::{Family, Fate};
use rustix::net::{SocketType, sockopt};
use rustix::time::{ClockId, clock_gettime};

use crate::stage::{Pod, Stage, ip, on_stage};

/// Connections of each kind per round, and number of rounds.
const CONNECTIONS: usize = 2_000;
const ROUNDS: usize = 5;

/// The median time of `connect` in microseconds, the best of all rounds.
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
        pod.enroll(&mut hooks);
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
        // Memory of the tables as reported by the kernel for their descriptors.
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
            pod.enroll(&mut hooks);
        }
        let each = started.elapsed() / 200;
        println!(
            "each pod: {:.2} KiB of the process, {:.2} KiB of tables, {each:.0?} to enroll",
            (memory() - process) as f64 / 200.0,
            (tables() - kernel) as f64 / 200.0,
        );
        let started = Instant::now();
        hooks.died().unwrap();
        println!("the proxy's death, for all: {:.1?}", started.elapsed());
    });
}

/// Exchanges of 64 bytes over the pod's loopback interface, in nanoseconds of this thread's processor time each.
fn exchanges(a: &OwnedFd, b: &OwnedFd) -> f64 {
    const COUNT: i32 = 20_000;
    let spent = || {
        let time = clock_gettime(ClockId::ThreadCPUTime);
        time.tv_sec as f64 * 1e9 + time.tv_nsec as f64
    };
    let mut bytes = [0; 64];
    let before = spent();
    for _ in 0..COUNT {
        for (from, to) in [(a, b), (b, a)] {
            rustix::io::write(from, &bytes).unwrap();
            rustix::io::read(to, &mut bytes).unwrap();
        }
    }
    (spent() - before) / f64::from(COUNT)
}

#[test]
#[ignore = "a measurement"]
fn of_a_packet() {
    on_stage(|stage| {
        let pod = stage.pod(1);
        let listener = stage.serve(&pod, "127.0.0.1:80");
        let client = OwnedFd::from(stage.connect(&pod, "127.0.0.1:80").unwrap());
        let server = OwnedFd::from(crate::stage::accept(&listener).0);
        ip("address add 10.111.0.1/32 dev lo");
        let node = TcpListener::bind("10.111.0.1:80").unwrap();
        let far = OwnedFd::from(stage.connect(&pod, "10.111.0.1:80").unwrap());
        let near = OwnedFd::from(crate::stage::accept(&node).0);
        for socket in [&client, &server, &far, &near] {
            sockopt::set_tcp_nodelay(socket, true).unwrap();
        }
        let measure = || [exchanges(&client, &server), exchanges(&far, &near)];
        let (mut without, mut with, mut enrolled) =
            ([f64::INFINITY; 2], [f64::INFINITY; 2], [f64::INFINITY; 2]);
        let least = |best: &mut [f64; 2], now: [f64; 2]| {
            for (best, now) in best.iter_mut().zip(now) {
                *best = best.min(now);
            }
        };
        for _ in 0..3 * ROUNDS {
            least(&mut without, measure());
            let mut hooks = stage.hooks();
            least(&mut with, measure());
            pod.enroll(&mut hooks);
            hooks.serve(pod.id, Fate::Refuse).unwrap();
            least(&mut enrolled, measure());
            for told in packet_programs() {
                println!("{told}");
            }
            drop(hooks);
            heddle_intercept::hooks::uninstall(&stage.bpffs()).unwrap();
        }
        println!(
            "an exchange of 64 bytes by TCP within the pod and with the node, ns of processor time:"
        );
        println!("{without:6.0?}  no hooks");
        println!("{with:6.0?}  hooks, a pod that is not enrolled");
        println!("{enrolled:6.0?}  hooks, an enrolled pod");
    });
}

/// The kernel's statistics of packet programs, available while the sysctl `kernel.bpf_stats_enabled` is on.
fn packet_programs() -> Vec<String> {
    let entries = std::fs::read_dir("/proc/self/fdinfo").unwrap();
    let infos = entries.filter_map(|entry| std::fs::read_to_string(entry.ok()?.path()).ok());
    let field = |info: &str, name: &str| {
        let value = info.lines().find_map(|line| line.strip_prefix(name))?;
        value.trim().parse::<u64>().ok()
    };
    let told = infos.filter_map(|info| {
        let kind = field(&info, "prog_type:")?;
        let (time, count) = (field(&info, "run_time_ns:")?, field(&info, "run_cnt:")?);
        ([3, 8].contains(&kind) && count > 0)
            .then(|| format!("a program for packets: {} ns, {count} times", time / count))
    });
    told.collect()
}
