//! The gap between two proxies: connections wait for the next proxy, or are treated as without one (strict pods are
//! refused, others connect directly).

use std::fs;
use std::net::SocketAddr;
use std::time::Duration;

use heddle_lab::lab::Family;
use rustix::event::{PollFd, PollFlags, poll};
use rustix::process::{Pid, PidfdFlags, Signal, kill_process, pidfd_open};

use crate::deaths::{AT_ONCE, holder, proxy_of, servers, stage, strict};
use crate::in_a_pod::now_us;
use crate::load::{Kind, Load, Outcome};
use crate::stage::{Stage, pause, until};

/// Upper bound of each time without a proxy. A build without optimisation should be back in a second; beside a running
/// compiler it has taken two.
const BACK_WITHIN: Duration = match cfg!(debug_assertions) {
    true => Duration::from_secs(3),
    false => Duration::from_secs(1),
};
/// Upper bound of the median of several such times.
const USUALLY_WITHIN: Duration = match cfg!(debug_assertions) {
    true => Duration::from_secs(2),
    false => Duration::from_millis(300),
};
/// Time within which a program whose dial was aborted has tried again, beside a running compiler.
const DIALLED_AGAIN_WITHIN: Duration = Duration::from_secs(4);
/// A proxy that is killed after it has lived for this long did not fail at its start, so connections wait for the next
/// one.
const HAS_WORKED: Duration = Duration::from_millis(1100);

/// The times of killing a proxy.
struct Kill {
    at_us: u64,
    /// When the process had ended, with all its connections.
    gone_us: u64,
}

fn kill(pid: Pid) -> Kill {
    let process = pidfd_open(pid, PidfdFlags::empty()).expect("a process");
    let at_us = now_us();
    kill_process(pid, Signal::KILL).expect("killed");
    // Wait for all threads: the first one may end before the others have closed the connections.
    poll(&mut [PollFd::new(&process, PollFlags::IN)], None).expect("ended");
    let gone_us = now_us();
    Kill { at_us, gone_us }
}

/// Kills a proxy that has worked for a while. When this returns, the next one is running, but perhaps not ready.
fn kill_one_that_worked(holder: Pid) -> Kill {
    pause(HAS_WORKED);
    let proxy = proxy_of(holder).expect("a proxy");
    let killed = kill(proxy);
    until("there is another", || {
        proxy_of(holder).is_some_and(|next| next != proxy)
    });
    killed
}

/// Kills the next proxy too, before it has served a pod: then the holder delays another one, and connections do not
/// wait for it.
fn kill_two(holder: Pid) -> Kill {
    kill_one_that_worked(holder);
    kill(proxy_of(holder).expect("another proxy"))
}

/// The peak memory of a process without file-backed pages, in KiB.
fn most_held(pid: Pid) -> u64 {
    let status = fs::read_to_string(format!("/proc/{}/status", pid.as_raw_nonzero()));
    let status = status.expect("it lives");
    let kib = |name: &str| -> u64 {
        let line = status.lines().find_map(|line| line.strip_prefix(name));
        let number = line.and_then(|line| line.split_whitespace().next());
        number.expect(name).parse().expect("a number")
    };
    kib("VmHWM:").saturating_sub(kib("RssFile:"))
}

/// `guest` calls the Service's cluster address, which no host has: only the mesh answers there.
fn at_the_service(stage: &Stage) -> String {
    SocketAddr::new(stage.cluster_address("window", Family::V4), 80).to_string()
}

fn until_it_goes_on(load: &Load, since_us: u64) {
    until("it goes on", || {
        let outcomes = load.outcomes();
        let is_since = |one: &&Outcome| one.is_good() && one.began_us > since_us;
        outcomes.iter().filter(is_since).count() > 20
    });
}

fn is_cut(one: &Outcome) -> bool {
    one.what == "connection-reset" || one.what == "unexpected-end-of-file"
}

#[test]
fn a_proxy_that_is_killed_is_back_in_no_time_and_what_is_dialled_until_then_waits_for_it() {
    let Some(stage) = stage() else { return };
    let _servers = servers(&stage);
    let holder = holder(&stage);
    // The kernel's type information (BTF) alone would need three times as much.
    let held = most_held(holder);
    assert!(held < 6 << 10, "the holder has held {held} KiB");
    // Given calling pods, one of them strict, and a client outside of the pods …
    let capture = stage.hear_node("one");
    let loads = [
        ("clerk", stage.at("vault", 80)),
        ("guest", stage.at("window", 80)),
        ("guest", at_the_service(&stage)),
        ("stranger", stage.at("window", 80)),
    ];
    let loads = loads.map(|(pod, to)| Load::start(&stage, pod, Kind::Anew, &to));
    // … when the proxy of their node is killed several times …
    let mut kills = Vec::new();
    for _ in 0..3 {
        let killed = kill_one_that_worked(holder);
        for load in &loads {
            until_it_goes_on(load, killed.gone_us);
        }
        kills.push(killed);
    }
    let outcomes = loads.map(Load::stop);
    let heard = capture.stop();
    // … then the next one serves soon …
    let [of_strict, ..] = &outcomes;
    let mut gaps: Vec<Duration> = Vec::new();
    for kill in &kills {
        let good = of_strict.iter();
        let good = good.filter(|one| one.is_good() && one.began_us >= kill.gone_us);
        let back = good.map(Outcome::ended_us).min().expect("it is back");
        gaps.push(Duration::from_micros(back - kill.at_us));
    }
    eprintln!("after a proxy was killed, strict pods were served again after {gaps:?}");
    gaps.sort_unstable();
    let (median, longest) = (gaps[gaps.len() / 2], gaps[gaps.len() - 1]);
    assert!(median < USUALLY_WITHIN, "{gaps:?}");
    assert!(longest < BACK_WITHIN, "{gaps:?}");
    // … only requests fail that were in progress when it was killed …
    for outcomes in &outcomes {
        let failed: Vec<&Outcome> = outcomes.iter().filter(|one| !one.is_good()).collect();
        let was_in_hand = |one: &&&Outcome| {
            let of = |kill: &Kill| one.began_us < kill.gone_us && one.ended_us() >= kill.at_us;
            is_cut(one) && kills.iter().any(of)
        };
        let lost: Vec<_> = failed.iter().filter(|one| !was_in_hand(one)).collect();
        assert!(
            lost.is_empty(),
            "{lost:?} of {kills:?}",
            kills = kills.len()
        );
        assert!(failed.len() <= kills.len(), "{failed:?}");
    }
    // … and no pod has sent or received a byte outside of the mesh, except what the stranger itself sends.
    let pods = [strict(&stage), vec![stage.address("guest")]].concat();
    assert_eq!(heard.of(&pods).payload, 0, "{heard:?}");
}

#[test]
fn pods_meet_their_fate_when_the_next_proxy_dies_as_well() {
    let Some(stage) = stage() else { return };
    let _servers = servers(&stage);
    let holder = holder(&stage);
    // Given a strict pod that calls another, and permissive pods that call each other …
    let capture = stage.hear_node("one");
    let refused = Load::start(&stage, "clerk", Kind::Anew, &stage.at("vault", 80));
    let passed = Load::start(&stage, "guest", Kind::Anew, &stage.at("window", 80));
    // … when the proxy of their node is killed, and the next one before it serves …
    let killed = kill_two(holder);
    // A program that has waited in the queue since just before the kill was noticed waits to the end; new dials do not.
    let direct = stage.dial("guest", &stage.at("window", 80));
    assert!(direct.is_good(), "{direct:?}");
    let mut dialled = Vec::new();
    while dialled.last().is_none_or(|last: &Outcome| !last.is_good()) {
        dialled.push(stage.dial("clerk", &stage.at("vault", 80)));
    }
    until_it_goes_on(&refused, killed.gone_us);
    for pod in ["vault", "guest"] {
        stage.until_served(pod);
    }
    let (refused, passed) = (refused.stop(), passed.stop());
    let heard = capture.stop();
    // … then the strict pod is refused until there is a proxy, and at once: connections in progress or waiting are
    // reset, new ones refused. No server answered any of them …
    let all = refused.iter().chain(&dialled);
    let failed: Vec<&Outcome> = all.filter(|one| !one.is_good()).collect();
    let is_refused = |one: &Outcome| one.what == "connection-refused" && one.took < AT_ONCE;
    assert!(
        failed.iter().all(|one| is_cut(one) || is_refused(one)),
        "{failed:?}"
    );
    assert!(failed.iter().any(|one| is_refused(one)), "{failed:?}");
    // … and nothing of them was sent in plaintext.
    assert_eq!(heard.of(&strict(&stage)).payload, 0, "{heard:?}");
    // The others continued without a mesh: only connections in progress or waiting were lost.
    let lost: Vec<&Outcome> = passed.iter().filter(|one| !one.is_good()).collect();
    assert!(lost.len() <= 4, "{lost:?}");
    let directly = heard.of(&[stage.address("guest")]);
    assert!(directly.payload > 0, "{heard:?}");
}

#[test]
fn a_service_that_was_dialled_when_pods_had_met_their_fate_is_dialled_again_when_there_is_a_proxy()
{
    let Some(stage) = stage() else { return };
    let _servers = servers(&stage);
    let to = at_the_service(&stage);
    let loads = [(); 4].map(|()| Load::start(&stage, "guest", Kind::Anew, &to));
    let holder = holder(&stage);
    kill_two(holder);
    until("there is another", || proxy_of(holder).is_some());
    stage.until_served("guest");
    let back = now_us();
    for load in &loads {
        until("a client goes on", || {
            let outcomes = load.outcomes();
            outcomes
                .iter()
                .any(|one| one.is_good() && one.began_us > back)
        });
    }
    // The kernel would retransmit the SYN after one, three and seven seconds, and so on for two minutes.
    let waited = Duration::from_micros(now_us() - back);
    assert!(waited < DIALLED_AGAIN_WITHIN, "after {waited:?}");
}

/// A measurement without assertions, with `--ignored --nocapture`: how long until a strict pod is served again.
#[test]
#[ignore = "a measurement"]
fn twenty_deaths() {
    let Some(stage) = stage() else { return };
    let _servers = servers(&stage);
    let holder = holder(&stage);
    let clerk = Load::start(&stage, "clerk", Kind::Anew, &stage.at("vault", 80));
    let _others = ["guest", "window"]
        .map(|pod| Load::start(&stage, pod, Kind::Anew, &stage.at("window", 80)));
    let mut kills = Vec::new();
    for _ in 0..20 {
        let killed = kill_one_that_worked(holder);
        until_it_goes_on(&clerk, killed.gone_us);
        kills.push(killed);
    }
    let outcomes = clerk.stop();
    let back = kills.iter().map(|kill| {
        let since = outcomes.iter();
        let since = since.filter(|one| one.began_us >= kill.gone_us && one.is_good());
        let back = since.map(Outcome::ended_us).min();
        back.map_or(u64::MAX, |back| back - kill.at_us)
    });
    let mut back: Vec<u64> = back.collect();
    back.sort_unstable();
    println!("served again after, in µs, sorted: {back:?}");
}
