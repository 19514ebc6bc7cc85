//! Processor time of the proxy is accounted to the callers it was used for.

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use heddle_model::WorkloadName;

use crate::policy::workload;
use crate::support::{Bed, Client, GET, count, echo_entry, mesh, open, serve, workers};

/// The callers call until the Workers have used so many seconds of processor time: shares of little time are noise.
const ENOUGH_S: f64 = 3.0;
/// And no longer than this.
const PATIENCE: Duration = Duration::from_secs(60);
/// How far the part of a caller's time may be from that of its requests. They do not cost the same: the more of a Worker's
/// connections are ready at once, the less is one request. Shares were up to 8 % apart on a quiet machine.
const SHARE_TOLERANCE: f64 = 0.2;
/// Connections of each caller.
const CONNECTIONS: [(&str, usize); 2] = [("often", 6), ("seldom", 2)];

/// Sends requests one after the other until it is over. Returns their number.
fn call(listener: SocketAddr, is_over: &AtomicBool) -> u64 {
    let mut client = Client::connect(listener);
    let mut sent = 0;
    while !is_over.load(Ordering::Relaxed) {
        assert_eq!(client.ask(GET).status(), 200);
        sent += 1;
    }
    sent
}

/// Nanoseconds on a processor of all Workers of this proxy, by the kernel.
fn ran_s(bed: &Bed) -> f64 {
    let workers = bed.proxy.status().workers.into_iter();
    // One that has not started yet has no thread.
    let workers = workers.filter(|worker| worker.thread > 0);
    let ran = workers.map(|worker| {
        let path = format!("/proc/self/task/{}/schedstat", worker.thread);
        let text = std::fs::read_to_string(path).unwrap();
        let ns: u64 = text.split(' ').next().unwrap().parse().unwrap();
        ns as f64 / 1e9
    });
    ran.sum()
}

/// On cores that others want, too: by the clock most of the time would be waiting.
#[test]
fn processor_time_adds_up_and_is_divided_by_use_on_contended_cores() {
    let mut mesh = mesh(&[serve(|_| "ok".into())], None);
    let nowhere = "127.0.0.9:1".parse().unwrap();
    mesh.workloads = CONNECTIONS
        .map(|(name, _)| workload(name, nowhere).into())
        .into();
    let bed = Bed::with(workers(2, 2), &mesh);
    let is_over = Arc::new(AtomicBool::new(false));
    let spinners: Vec<_> = (0..2 * thread::available_parallelism().unwrap().get())
        .map(|_| {
            let is_over = Arc::clone(&is_over);
            thread::spawn(move || while !is_over.load(Ordering::Relaxed) {})
        })
        .collect();
    let calling = (10..).zip(CONNECTIONS).map(|(id, (name, count))| {
        let caller = WorkloadName::new("test", name).unwrap();
        let listener = open(&bed.proxy, id, echo_entry(Some(caller)));
        (0..count)
            .map(|_| {
                let is_over = Arc::clone(&is_over);
                thread::spawn(move || call(listener, &is_over))
            })
            .collect()
    });
    let calling: Vec<Vec<JoinHandle<u64>>> = calling.collect();
    let by = Instant::now() + PATIENCE;
    while ran_s(&bed) < ENOUGH_S && Instant::now() < by {
        thread::park_timeout(Duration::from_millis(50));
    }
    is_over.store(true, Ordering::Relaxed);
    let sent = calling.into_iter().map(|threads| {
        let sent = threads.into_iter().map(|thread| thread.join().unwrap());
        sent.sum::<u64>() as f64
    });
    let sent: Vec<f64> = sent.collect();
    spinners.into_iter().for_each(|spin| spin.join().unwrap());

    let of = |source: &str| {
        let label = format!("source=\"{source}\"");
        count(&bed.registry, "heddle_source_cpu_seconds_total", &[&label])
    };
    // Workers settle their accounts at the next sweep.
    let by = Instant::now() + Duration::from_secs(10);
    let (often, seldom, said) = loop {
        let all = count(&bed.registry, "heddle_source_cpu_seconds_total", &[]);
        let ran = ran_s(&bed);
        let [often, seldom, own] = ["test/often", "test/seldom", "heddle"].map(of);
        let said = format!(
            "often {often:.3} s, seldom {seldom:.3} s, own {own:.3} s, all {all:.3} s, ran {ran:.3} s"
        );
        if (all / ran - 1.0).abs() < 0.05 {
            break (often, seldom, said);
        }
        assert!(Instant::now() < by, "{said}");
        thread::park_timeout(Duration::from_millis(20));
    };
    println!("{said}");
    let all_sent: f64 = sent.iter().sum();
    for (cpu, sent) in [often, seldom].into_iter().zip(&sent) {
        let (share, wanted) = (cpu / (often + seldom), sent / all_sent);
        println!("{share:.3} of the time for {wanted:.3} of the requests");
        assert!(
            (share / wanted - 1.0).abs() < SHARE_TOLERANCE,
            "{share:.3} for {wanted:.3}: {said}"
        );
    }
}
