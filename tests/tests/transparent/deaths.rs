//! The effect on pods when the proxy or the holder of their node is killed.
//!
//! `vault` and `clerk` are strict: they communicate through the mesh or not at all. `window` and `guest` communicate in
//! plaintext when there is no mesh.

use std::fs;
use std::net::IpAddr;
use std::process::Command;
use std::time::Duration;

use heddle_intercept::request::PodState;
use heddle_skips::skipped;
use rustix::process::{Pid, Signal, kill_process};

use crate::load::{Kind, Load, Outcome};
use crate::programs::{Serving, text};
use crate::stage::{Scene, Stage, pause, until};

/// Upper bound of the time to a refusal, on a machine with other load.
pub(crate) const AT_ONCE: Duration = Duration::from_millis(250);

/// The lab. `None`, with a message: no lab can run here, or no hooks guard pods after everything is killed.
pub(crate) fn stage() -> Option<Stage> {
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

pub(crate) fn servers(stage: &Stage) -> [Serving; 2] {
    ["vault", "window"].map(|pod| stage.answer(pod, 80))
}

/// The addresses of the pods that never communicate in plaintext.
pub(crate) fn strict(stage: &Stage) -> Vec<IpAddr> {
    let pods = ["vault", "clerk"].map(|pod| stage.pod(pod).plan().addresses.clone());
    pods.concat()
}

/// The holder of node `one`.
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

fn kill(pid: Pid) {
    kill_process(pid, Signal::KILL).expect("killed");
}

/// The command line of a holder that was killed together with its proxy.
pub(crate) struct Killed {
    program: std::path::PathBuf,
    pub(crate) arguments: Vec<String>,
}

/// Kills the holder. Its proxy ends by itself, but the function does not wait for that.
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

/// Checks that strict pods can neither call nor be called, while others are not affected.
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
    // … then strict pods do not communicate, and others do, in plaintext.
    only_the_guard_is_left(&stage);
    let heard = capture.stop();
    assert_eq!(heard.of(&strict(&stage)).payload, 0, "{heard:?}");
    // When the guard is removed, then no pod has any trace of the mesh.
    let bpffs = stage
        .node("one")
        .admin_socket()
        .with_file_name("bpf/heddle");
    let uninstall = || stage.heddle(&["node", "cleanup", "--bpffs", &text(&bpffs)]);
    let said = uninstall().expect("uninstalled");
    assert!(said.starts_with("removed "), "{said}");
    let again = uninstall().expect_err("nothing is left there");
    assert!(again.contains("nothing to remove"), "{again}");
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
    // Given a client of a strict pod that calls repeatedly …
    let capture = stage.hear_node("one");
    let load = Load::start(&stage, "clerk", Kind::Anew, &vault);
    // … when holder and proxy are killed, and started again later …
    let killed = kill_both(&stage);
    pause(Duration::from_millis(300));
    let _started = killed.start(&stage);
    // … then the pods are served as before, without being enrolled again …
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
    // … and meanwhile nothing was sent in plaintext.
    let outcomes = load.stop();
    assert!(outcomes.iter().any(|one| !one.is_good()), "nothing failed");
    let heard = capture.stop();
    assert_eq!(heard.of(&strict(&stage)).payload, 0, "{heard:?}");
    // A stranger is anonymous to the new proxy, too.
    assert_eq!(stage.dial("stranger", &vault).what, "403");
}

#[test]
fn a_proxy_that_is_told_to_end_alone_says_so_and_is_replaced() {
    let Some(stage) = stage() else { return };
    let _servers = servers(&stage);
    let vault = stage.at("vault", 80);
    stage.until_served("vault");
    // Given a proxy that gets a stop signal from another process than its holder …
    let holder = holder(&stage);
    let proxy = proxy_of(holder).expect("a proxy");
    kill_process(proxy, Signal::TERM).expect("told");
    // … then that is logged at once, and another proxy replaces it.
    until("it is said", || {
        stage
            .log("one")
            .contains("told to stop by another process than its holder")
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
    // Given a proxy that is stopped (SIGSTOP) …
    let before = holder(&stage);
    let proxy = proxy_of(before).expect("a proxy");
    kill_process(proxy, Signal::STOP).expect("stopped");
    // … then the holder reports it as unresponsive, and as serving when it is continued, without any loss …
    until("it is found out", is_late);
    let says = |what| until(what, || stage.log("one").contains(what));
    says("does not answer");
    kill_process(proxy, Signal::CONT).expect("continued");
    stage.until_served("vault");
    says("the proxy answers again");
    assert_eq!(proxy_of(before), Some(proxy));
    assert!(stage.dial("clerk", &vault).is_good());
    // … and given a holder with a proxy timeout of five seconds, when its proxy is stopped and not continued …
    let killed = kill_both(&stage);
    let after = killed.start_with(&stage, &["--proxy-timeout", "5"]);
    stage.until_served("vault");
    let proxy = proxy_of(after.pid()).expect("a proxy");
    kill_process(proxy, Signal::STOP).expect("stopped");
    // … then another proxy replaces it.
    until("it is found out", is_late);
    stage.until_served("vault");
    assert_ne!(proxy_of(after.pid()), Some(proxy));
    until("requests are answered", || {
        stage.dial("clerk", &vault).is_good()
    });
}

impl Killed {
    /// Starts the holder again, in the same control groups.
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
        // The address on which other nodes expect it.
        stage.serve_by("one-again", 15008, command)
    }
}
