//! What becomes of pods when what carries them is killed.
//!
//! `vault` and `clerk` are strict: they speak to the mesh or not at all. `window` and `guest` speak in the clear
//! when there is no mesh.

use std::fs;
use std::net::{IpAddr, SocketAddr};
use std::process::Command;
use std::time::Duration;

use heddle_intercept::request::PodState;
use heddle_lab::lab::Family;
use heddle_skips::skipped;
use rustix::process::{Pid, Signal, kill_process};

use crate::in_a_pod::now_us;
use crate::load::{Kind, Load, Outcome};
use crate::programs::{Serving, text};
use crate::stage::{Scene, Stage, pause, until};

/// How long a node may be without a proxy, each time. A program that was not optimised is to be back in a second;
/// beside a compiler it has been seen to take two.
const BACK_WITHIN: Duration = match cfg!(debug_assertions) {
    true => Duration::from_secs(3),
    false => Duration::from_secs(1),
};
/// The same, of the median of several times.
const USUALLY_WITHIN: Duration = match cfg!(debug_assertions) {
    true => Duration::from_secs(2),
    false => Duration::from_millis(300),
};
/// How soon a program whose dial was ended has tried again, beside a compiler.
const DIALLED_AGAIN_WITHIN: Duration = Duration::from_secs(4);
/// How long it takes to be refused, at most, on a machine that others use as well.
const AT_ONCE: Duration = Duration::from_millis(250);

/// The lab. `None`: there can be none here, or nothing is left to guard pods when all is killed; which is said.
fn stage() -> Option<Stage> {
    let stage = scene().up()?;
    if stage.log("one").contains("hooks=Bpf") {
        return Some(stage);
    }
    skipped("pods meet other fates without BPF (heddle check --probe says what is missing)");
    None
}

fn scene() -> Scene {
    Scene::default()
        .strict("vault", "one")
        .strict("clerk", "one")
        .service("vault", "{port: 80, appProtocol: http}")
        .pod("window", "one")
        .pod("guest", "one")
        .service("window", "{port: 80, appProtocol: http}")
        .outsider("stranger", "one")
}

fn servers(stage: &Stage) -> [Serving; 2] {
    ["vault", "window"].map(|pod| stage.answer(pod, 80))
}

/// The pods that never speak in the clear.
fn strict(stage: &Stage) -> Vec<IpAddr> {
    let pods = ["vault", "clerk"].map(|pod| stage.pod(pod).plan().addresses.clone());
    pods.concat()
}

/// The holder of node `one`, and the proxy that is its child.
pub(crate) fn holder(stage: &Stage) -> Pid {
    let processes = stage.lab().processes();
    let note = processes.iter().find(|one| one.what == "heddle node one");
    let pid = note.expect("a note").pid;
    Pid::from_raw(pid).expect("a number")
}

pub(crate) fn proxy_of(holder: Pid) -> Option<Pid> {
    let pid = holder.as_raw_nonzero();
    let children = fs::read_to_string(format!("/proc/{pid}/task/{pid}/children")).ok()?;
    let first = children.split_whitespace().next()?;
    Pid::from_raw(first.parse().ok()?)
}

/// The most memory that a process ever held, less its program, in KiB.
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

fn kill(pid: Pid) -> u64 {
    let at = now_us();
    kill_process(pid, Signal::KILL).expect("killed");
    at
}

#[test]
fn a_proxy_that_is_killed_is_back_in_no_time_and_pods_meet_their_fate_until_then() {
    let Some(stage) = stage() else { return };
    let _servers = servers(&stage);
    let holder = holder(&stage);
    // What the kernel says of its types would be three times as much.
    let held = most_held(holder);
    assert!(held < 6 << 10, "the holder has held {held} KiB");
    // Given a strict pod that calls another, and others that call each other …
    let capture = stage.hear_node("one");
    let refused = Load::start(&stage, "clerk", Kind::Anew, &stage.at("vault", 80));
    let passed = Load::start(&stage, "guest", Kind::Anew, &stage.at("window", 80));
    // … when the proxy of their node is killed, and killed again when it is back …
    let mut kills = Vec::new();
    let mut dialled = Vec::new();
    for _ in 0..3 {
        let at = kill(proxy_of(holder).expect("a proxy"));
        kills.push(at);
        // A program that waits in a queue since a moment before it was noticed waits to the end: others do not.
        let direct = stage.dial("guest", &stage.at("window", 80));
        assert!(direct.is_good(), "{direct:?}");
        while dialled
            .last()
            .is_none_or(|last: &Outcome| !last.is_good() || last.began_us < at)
        {
            dialled.push(stage.dial("clerk", &stage.at("vault", 80)));
        }
        let is_back = |load: &Load| {
            let since = |one: &Outcome| one.is_good() && one.began_us > at;
            load.outcomes().iter().filter(|one| since(one)).count() > 20
        };
        until("it is back", || {
            is_back(&refused) && proxy_of(holder).is_some()
        });
        for pod in ["vault", "guest"] {
            stage.until_served(pod);
        }
    }
    let (refused, passed) = (refused.stop(), passed.stop());
    let heard = capture.stop();
    // … then it is back within a blink …
    let gaps = kills.iter().map(|at| {
        let good = refused
            .iter()
            .filter(|one| one.is_good() && one.began_us >= *at);
        let back = good.map(Outcome::ended_us).min().expect("it is back");
        Duration::from_micros(back - at)
    });
    let mut gaps: Vec<Duration> = gaps.collect();
    eprintln!("after a proxy was killed, strict pods were served again after {gaps:?}");
    gaps.sort_unstable();
    let (median, longest) = (gaps[gaps.len() / 2], gaps[gaps.len() - 1]);
    assert!(median < USUALLY_WITHIN, "{gaps:?}");
    assert!(longest < BACK_WITHIN, "{gaps:?}");
    // … the strict pod was refused until then, at once: what was under way was cut off, what was new turned
    // away. Nothing of it was answered by any server …
    let all = refused.iter().chain(&dialled);
    let failed: Vec<&Outcome> = all.filter(|one| !one.is_good()).collect();
    let is_cut =
        |one: &Outcome| one.what == "connection-reset" || one.what == "unexpected-end-of-file";
    let is_refused = |one: &Outcome| one.what == "connection-refused" && one.took < AT_ONCE;
    assert!(
        failed.iter().all(|one| is_cut(one) || is_refused(one)),
        "{failed:?}"
    );
    assert!(failed.iter().any(|one| is_refused(one)), "{failed:?}");
    // … and nothing of it was said in the clear.
    let in_the_clear = heard.of(&strict(&stage));
    assert_eq!(in_the_clear.payload, 0, "{heard:?}");
    // The others went on without a mesh: no more was lost than was under way.
    let lost: Vec<&Outcome> = passed.iter().filter(|one| !one.is_good()).collect();
    assert!(lost.len() <= 2 * kills.len(), "{lost:?}");
    let directly = heard.of(&[stage.address("guest")]);
    assert!(directly.payload > 0, "{heard:?}");
}

#[test]
fn a_service_that_was_dialled_while_there_was_no_proxy_is_dialled_again_when_there_is() {
    let Some(stage) = stage() else { return };
    let _servers = servers(&stage);
    let to = SocketAddr::new(stage.cluster_address("window", Family::V4), 80).to_string();
    let loads = [(); 4].map(|()| Load::start(&stage, "guest", Kind::Anew, &to));
    let holder = holder(&stage);
    let before = proxy_of(holder).expect("a proxy");
    kill(before);
    until("there is another", || {
        proxy_of(holder).is_some_and(|proxy| proxy != before)
    });
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
    // The kernel would ask again after one, three and seven seconds, and so on for two minutes.
    let waited = Duration::from_micros(now_us() - back);
    assert!(waited < DIALLED_AGAIN_WITHIN, "after {waited:?}");
}

/// Figures, not verdicts, with `--ignored --nocapture`: how long until a strict pod is refused, and until it is served
/// again.
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
        let at = kill(proxy_of(holder).expect("a proxy"));
        kills.push(at);
        until("it is back", || {
            let outcomes = clerk.outcomes();
            let since = outcomes.iter().rev().take_while(|one| one.began_us > at);
            since.filter(|one| one.is_good()).count() > 20 && proxy_of(holder).is_some()
        });
        stage.until_served("vault");
        // Not one death that takes long, but one after the other.
        pause(Duration::from_millis(1500));
    }
    let outcomes = clerk.stop();
    let first = |at: u64, when: fn(&Outcome) -> u64, is: fn(&Outcome) -> bool| {
        let since = outcomes.iter().filter(|one| one.began_us >= at && is(one));
        since.map(when).min().map_or(u64::MAX, |then| then - at)
    };
    let refused = kills.iter().map(|at| {
        first(
            *at,
            |one| one.began_us,
            |one| one.what == "connection-refused",
        )
    });
    let served = kills
        .iter()
        .map(|at| first(*at, Outcome::ended_us, Outcome::is_good));
    for (what, times) in [
        ("refused", sorted(refused)),
        ("served again", sorted(served)),
    ] {
        println!("{what} after, in µs, sorted: {times:?}");
    }
}

fn sorted(times: impl Iterator<Item = u64>) -> Vec<u64> {
    let mut times: Vec<u64> = times.collect();
    times.sort_unstable();
    times
}

/// A node's holder and proxy, killed.
pub(crate) struct Killed {
    program: std::path::PathBuf,
    pub(crate) arguments: Vec<String>,
}

/// The proxy of a holder that is gone ends by itself, but is not waited for.
pub(crate) fn kill_both(stage: &Stage) -> Killed {
    let holder = holder(stage);
    let of = |what: &str| format!("/proc/{}/{what}", holder.as_raw_nonzero());
    let program = fs::read_link(of("exe")).expect("its program");
    let line = fs::read_to_string(of("cmdline")).expect("its arguments");
    let arguments = line.split_terminator('\0').skip(1).map(str::to_owned);
    let arguments = arguments.collect();
    let proxy = proxy_of(holder).expect("a proxy");
    kill(holder);
    let _gone_with_it = kill_process(proxy, Signal::KILL);
    until("both are gone", || {
        [holder, proxy].iter().all(|pid| {
            let status = fs::read_to_string(format!("/proc/{}/stat", pid.as_raw_nonzero()));
            status.map_or(true, |status| status.contains(") Z "))
        })
    });
    Killed { program, arguments }
}

/// That strict pods neither call nor are called, and others are left alone.
fn only_the_guard_is_left(stage: &Stage) {
    let (vault, window) = (stage.at("vault", 80), stage.at("window", 80));
    for (from, to) in [
        ("clerk", &vault),
        ("clerk", &window),
        ("guest", &vault),
        ("stranger", &vault),
    ] {
        let outcome = stage.dial(from, to);
        assert!(!outcome.is_good(), "{from} to {to}: {outcome:?}");
        assert!(outcome.took < AT_ONCE, "{from} to {to}: {outcome:?}");
    }
    for from in ["guest", "stranger"] {
        let outcome = stage.dial(from, &window);
        assert!(outcome.is_good(), "{from} to {window}: {outcome:?}");
    }
}

#[test]
fn without_holder_and_proxy_only_the_guard_is_left_which_uninstall_removes() {
    let Some(stage) = stage() else { return };
    let _servers = servers(&stage);
    let vault = stage.at("vault", 80);
    assert!(stage.dial("clerk", &vault).is_good());
    // Given a node whose holder and proxy were killed …
    let capture = stage.hear_node("one");
    kill_both(&stage);
    // … then strict pods do not speak, and others do, in the clear.
    only_the_guard_is_left(&stage);
    let heard = capture.stop();
    assert_eq!(heard.of(&strict(&stage)).payload, 0, "{heard:?}");
    // When the guard is removed, then nothing of the mesh is left, for any pod.
    let bpffs = stage
        .node("one")
        .admin_socket()
        .with_file_name("bpf/heddle");
    let uninstall = || stage.heddle(&["uninstall", "--bpffs", &text(&bpffs)]);
    let said = uninstall().expect("uninstalled");
    assert!(said.starts_with("removed "), "{said}");
    assert!(uninstall().expect("uninstalled").contains("nothing"));
    for from in ["clerk", "guest", "stranger"] {
        let outcome = stage.dial(from, &vault);
        assert!(outcome.is_good(), "{from}: {outcome:?}");
    }
}

#[test]
fn a_new_holder_takes_over_and_strict_pods_never_speak_in_the_clear() {
    let Some(stage) = stage() else { return };
    let _servers = servers(&stage);
    let vault = stage.at("vault", 80);
    // Given a client of a strict pod that tries again and again …
    let capture = stage.hear_node("one");
    let load = Load::start(&stage, "clerk", Kind::Anew, &vault);
    // … when holder and proxy are killed, and started again later …
    let killed = kill_both(&stage);
    pause(Duration::from_millis(300));
    let _started = killed.start(&stage);
    // … then the pods are served as if nothing had been, without being enrolled again …
    for pod in ["vault", "clerk", "window", "guest"] {
        stage.until_served(pod);
    }
    let so_far = load.outcomes().len();
    until("requests are answered", || {
        let outcomes = load.outcomes();
        outcomes.len() > so_far + 20 && outcomes[so_far + 1..].iter().all(Outcome::is_good)
    });
    let carried = || stage.counters("one").carried("clerk", "vault").exchanges;
    assert!(carried() > 0);
    // … and in between nothing was said in the clear.
    let outcomes = load.stop();
    assert!(outcomes.iter().any(|one| !one.is_good()), "nothing failed");
    let heard = capture.stop();
    assert_eq!(heard.of(&strict(&stage)).payload, 0, "{heard:?}");
    // A stranger is anonymous to the new one, too.
    assert_eq!(stage.dial("stranger", &vault).what, "403");
}

#[test]
fn a_proxy_that_is_told_to_end_alone_says_so_and_is_replaced() {
    let Some(stage) = stage() else { return };
    let _servers = servers(&stage);
    let vault = stage.at("vault", 80);
    stage.until_served("vault");
    // Given a proxy that is told to end by another than its holder …
    let holder = holder(&stage);
    let proxy = proxy_of(holder).expect("a proxy");
    kill_process(proxy, Signal::TERM).expect("told");
    // … then that is said at once, and another takes its place.
    until("it is said", || {
        stage.log("one").contains("told to end, not by its holder")
    });
    until("another is there", || {
        proxy_of(holder).is_some_and(|other| other != proxy)
    });
    stage.until_served("vault");
    until("requests are answered", || {
        stage.dial("clerk", &vault).is_good()
    });
}

#[test]
fn a_proxy_that_is_stopped_is_found_out_and_replaced_when_it_stays_so() {
    let Some(stage) = stage() else { return };
    let _servers = servers(&stage);
    let vault = stage.at("vault", 80);
    stage.until_served("vault");
    let is_late = || stage.state("vault") == Some(PodState::Unresponsive);
    // Given a proxy that was stopped …
    let before = holder(&stage);
    let proxy = proxy_of(before).expect("a proxy");
    kill_process(proxy, Signal::STOP).expect("stopped");
    // … then that is said, and taken back when it goes on, as if nothing had been …
    until("it is found out", is_late);
    let says = |what| until(what, || stage.log("one").contains(what));
    says("does not answer");
    kill_process(proxy, Signal::CONT).expect("continued");
    stage.until_served("vault");
    says("the proxy answers again");
    assert_eq!(proxy_of(before), Some(proxy));
    assert!(stage.dial("clerk", &vault).is_good());
    // … and given one whose holder waits five seconds and no more, when that is stopped for good …
    let killed = kill_both(&stage);
    let after = killed.start_with(&stage, &["--proxy-timeout", "5"]);
    stage.until_served("vault");
    let proxy = proxy_of(after.pid()).expect("a proxy");
    kill_process(proxy, Signal::STOP).expect("stopped");
    // … then another takes its place.
    until("it is found out", is_late);
    stage.until_served("vault");
    assert_ne!(proxy_of(after.pid()), Some(proxy));
    until("requests are answered", || {
        stage.dial("clerk", &vault).is_good()
    });
}

impl Killed {
    /// Starts the same again, in the same control groups.
    pub(crate) fn start(&self, stage: &Stage) -> Serving {
        self.start_with(stage, &[])
    }

    fn start_with(&self, stage: &Stage, more: &[&str]) -> Serving {
        let groups = stage.node("one").proxy_control_groups();
        let enter = groups
            .iter()
            .map(|group| format!("echo 0 > {}/cgroup.procs; ", group.display()));
        let script = enter.collect::<String>() + "exec \"$@\"";
        let mut command: Command = stage.node("one").command("sh").expect("a node");
        command.args(["-c", &script, "sh"]);
        command.arg(&self.program).args(&self.arguments).args(more);
        // Where other nodes are expected.
        stage.serve_by("one-again", 15008, command)
    }
}
