//! The effect on a node when its holder is killed, and started again as by a service manager.
//!
//! Three clients call Services without a pause, with a connection for each request: `clerk` the strict `vault` on its
//! node, `guest` the permissive `window`, and `far` the vault from the other node.

use std::net::{IpAddr, SocketAddr};
use std::time::Duration;

use heddle_skips::skipped;
use rustix::process::{Pid, Signal, kill_process};

use crate::deaths::{holder, proxy_of};
use crate::in_a_pod::now_us;
use crate::load::{Kind, Load, Outcome, failures};
use crate::programs::Serving;
use crate::stage::{Scene, Stage, pause, until};

/// Upper bound of the time from the restart of a node to the first answer. A build without optimisation gets the time
/// that it takes beside a running compiler.
const BACK_WITHIN: Duration = match cfg!(debug_assertions) {
    true => Duration::from_secs(5),
    false => Duration::from_secs(1),
};
/// Upper bound of the shortest of several such times.
const BEST_WITHIN: Duration = match cfg!(debug_assertions) {
    true => Duration::from_secs(2),
    false => Duration::from_millis(600),
};
/// Consecutive answers after which a client counts as served.
const CALM: usize = 20;
/// The lab's names of the holder of node `one`, and of the control plane.
const NODE: &str = "heddle node one";
const CONTROL: &str = "heddle control";
/// Microseconds of a kernel clock tick, the same on every machine.
const TICK_US: u64 = 10_000;

fn stage() -> Option<Stage> {
    let stage = Scene::default()
        .strict("vault", "one")
        .strict("clerk", "one")
        .service("vault", "{port: 80, appProtocol: http}")
        .pod("window", "one")
        .pod("guest", "one")
        .service("window", "{port: 80, appProtocol: http}")
        .strict("far", "two")
        .kept()
        .up()?;
    if stage.log("one").contains("hooks=Bpf") {
        return Some(stage);
    }
    skipped("hooks outlive a holder without BPF (heddle check --probe says what is missing)");
    None
}

/// Servers, and the clients that call them.
struct Traffic {
    _servers: [Serving; 2],
    clients: Vec<(&'static str, Load)>,
}

impl Traffic {
    fn start(stage: &Stage) -> Traffic {
        let servers = ["vault", "window"].map(|pod| stage.answer(pod, 80));
        let clients = [("clerk", "vault"), ("guest", "window"), ("far", "vault")];
        let clients = clients.map(|(pod, service)| {
            let to = cluster_address(stage, service);
            (pod, Load::start(stage, pod, Kind::Anew, &to))
        });
        Traffic {
            _servers: servers,
            clients: clients.into(),
        }
    }

    /// Waits until every client has consecutive answers to requests that it sent since then.
    fn until_served_since(&self, at: u64) {
        for (pod, load) in &self.clients {
            until(&format!("{pod} is served again"), || {
                let outcomes = load.outcomes();
                let since = outcomes.iter().rev().take_while(|one| one.began_us >= at);
                since.take_while(|one| one.is_good()).count() >= CALM
            });
        }
    }
}

fn cluster_address(stage: &Stage, service: &str) -> String {
    let services = &stage.lab().plan().services;
    let mut found = services.iter();
    let found = found.find(|one| one.name.to_string() == format!("shop/{service}"));
    let addresses = &found.expect("a Service").cluster_addresses;
    let four = addresses.iter().copied().find(IpAddr::is_ipv4);
    SocketAddr::new(four.expect("an address"), 80).to_string()
}

/// A killed holder, and its successor.
#[derive(Debug)]
struct Death {
    killed_us: u64,
    /// When the next holder was started, according to the kernel.
    restarted_us: u64,
}

/// Kills the holder, and waits until the lab has started another one.
fn kill_holder(stage: &Stage) -> Death {
    let before = stage.process(NODE).restarts;
    let killed_us = now_us();
    kill_process(holder(stage), Signal::KILL).expect("killed");
    until("another holder is started", || {
        stage.process(NODE).restarts > before
    });
    Death {
        killed_us,
        restarted_us: stage.process(NODE).started * TICK_US,
    }
}

/// The time from a restart to a client's first good answer.
#[derive(Debug)]
struct Gap {
    pod: &'static str,
    time: Duration,
    /// The client's requests from the restart to that answer.
    _asked: Vec<Outcome>,
}

/// Kills the holder `count` times under load, and returns the time from each restart until each client was served.
fn gaps_of(stage: &Stage, count: usize) -> Vec<Gap> {
    let traffic = Traffic::start(stage);
    let mut deaths = Vec::new();
    for _ in 0..count {
        let proxy = proxy_of(holder(stage)).expect("a proxy");
        let death = kill_holder(stage);
        // The proxy has ended with its holder, and does not obstruct the next one.
        assert!(is_gone(proxy), "the proxy lives on");
        traffic.until_served_since(death.restarted_us);
        deaths.push(death);
        // Far enough apart for the deaths to count as separate ones.
        pause(Duration::from_millis(1_100));
    }
    let mut gaps = Vec::new();
    for (pod, load) in traffic.clients {
        let outcomes = load.stop();
        for (at, death) in deaths.iter().enumerate() {
            let next = deaths.get(at + 1).map_or(u64::MAX, |next| next.killed_us);
            let is_between = |one: &&Outcome| (death.restarted_us..next).contains(&one.ended_us());
            let since: Vec<Outcome> = outcomes.iter().filter(is_between).cloned().collect();
            let first = since.iter().position(Outcome::is_good).expect("it is back");
            let back_us = since[first].ended_us();
            gaps.push(Gap {
                pod,
                time: Duration::from_micros(back_us - death.restarted_us),
                _asked: since[..=first].to_vec(),
            });
            // Every request from then on is answered …
            let after: Vec<Outcome> = since
                .into_iter()
                .filter(|one| one.began_us >= back_us)
                .collect();
            let failed = failures(&after);
            assert!(failed.is_empty(), "{pod}, death {at}: {failed:?}");
        }
        // … and every request before ended soon, with any result.
        let long = outcomes.iter().max_by_key(|one| one.took).expect("some");
        assert!(long.took < BACK_WITHIN * 2, "{pod}: {long:?}");
    }
    gaps
}

/// Whether a process has ended.
fn is_gone(pid: Pid) -> bool {
    let stat = std::fs::read_to_string(format!("/proc/{}/stat", pid.as_raw_nonzero()));
    stat.map_or(true, |stat| stat.contains(") Z "))
}

#[test]
fn a_holder_that_is_killed_under_load_is_back_in_no_time_and_nothing_fails_after_that() {
    let Some(stage) = stage() else { return };
    let gaps = gaps_of(&stage, 3);
    tell(&gaps);
    let best = gaps.iter().map(|gap| gap.time).min().expect("some");
    assert!(best < BEST_WITHIN, "{gaps:?}");
}

#[test]
#[ignore = "takes a minute: make soak"]
fn twenty_holders_killed_under_load() {
    let Some(stage) = stage() else { return };
    tell(&gaps_of(&stage, 20));
}

fn tell(gaps: &[Gap]) {
    for client in ["clerk", "guest", "far"] {
        let own = gaps.iter().filter(|gap| gap.pod == client);
        let mut times: Vec<Duration> = own.map(|gap| gap.time).collect();
        times.sort_unstable();
        eprintln!("{client} had an answer after restarts of a holder, sorted: {times:?}");
    }
    let longest = gaps.iter().max_by_key(|gap| gap.time).expect("some");
    assert!(longest.time < BACK_WITHIN, "{longest:?}");
    eprintln!("the longest: {longest:?}");
}

#[test]
fn whatever_its_proxy_and_its_control_plane_do_a_holder_that_is_killed_is_back() {
    let Some(stage) = stage() else { return };
    let traffic = Traffic::start(&stage);
    let proxy = || proxy_of(holder(&stage)).expect("a proxy");
    let signal = |pid: Pid, signal| kill_process(pid, signal).expect("there is one");
    let served_since = |death: &Death| {
        traffic.until_served_since(death.restarted_us);
        assert!(stage.process(NODE).runs());
    };
    // Given a draining proxy with a stream that does not end …
    let _echoes = stage.answer("vault", 9_000);
    let stream = Load::start(&stage, "clerk", Kind::Talk, &stage.at("vault", 9_000));
    let draining = proxy();
    signal(draining, Signal::TERM);
    until("it drains", || stage.log("one").contains("stopping"));
    // … when its holder is killed, then the proxy ends …
    let death = kill_holder(&stage);
    assert!(is_gone(draining), "it drains on");
    served_since(&death);
    drop(stream);
    // … and so does a stopped (SIGSTOP) proxy …
    let stopped = proxy();
    signal(stopped, Signal::STOP);
    let death = kill_holder(&stage);
    assert!(is_gone(stopped), "it is stopped still");
    served_since(&death);
    // … and when both are killed, or the holder again right after its start, the node recovers …
    signal(proxy(), Signal::KILL);
    served_since(&kill_holder(&stage));
    kill_holder(&stage);
    served_since(&kill_holder(&stage));
    // … even while the control plane answers no node.
    let control = Pid::from_raw(stage.process(CONTROL).pid).expect("a number");
    signal(control, Signal::STOP);
    served_since(&kill_holder(&stage));
    signal(control, Signal::CONT);
    served_since(&kill_holder(&stage));
}

#[test]
fn a_lab_starts_again_what_has_died_and_what_it_is_told_to() {
    let Some(stage) = stage() else { return };
    // Given a control plane that dies …
    let before = stage.process(CONTROL);
    let pid = Pid::from_raw(before.pid).expect("a number");
    kill_process(pid, Signal::KILL).expect("killed");
    // … then another one is started, and that is reported …
    until("another control plane is there", || {
        let now = stage.process(CONTROL);
        now.pid != before.pid && now.runs()
    });
    let status = stage.heddle_lab(&["status"]).expect("a status");
    assert!(
        status
            .lines()
            .any(|line| line.contains(", 1 restart: heddle control")),
        "{status}"
    );
    let keeper = stage.lab().folder().join("logs/keeper.log");
    let said = std::fs::read_to_string(keeper).expect("a log");
    let expected = format!(
        "heddle control: process {} has ended; it is started again",
        before.pid
    );
    assert!(said.contains(&expected), "{said}");
    // … and a node that is to be restarted is restarted, and serves its pods when the command returns.
    for (words, restarts) in [
        (&["restart", "one", "--lab"][..], 1),
        (&["restart", "--kill", "one", "--lab"], 2),
    ] {
        let said = stage.heddle_lab(words).expect("restarted");
        assert!(said.starts_with("heddle node one: process "), "{said}");
        assert_eq!(stage.process(NODE).restarts, restarts);
        let state = stage.state("vault");
        assert_eq!(state, Some(heddle_intercept::request::PodState::Serving));
    }
    let refused = stage
        .heddle_lab(&["restart", "three", "--lab"])
        .unwrap_err();
    assert!(
        refused.contains("choose one of: control, one, two"),
        "{refused}"
    );
}
