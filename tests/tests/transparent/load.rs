//! Clients in pods that send one request after the other, and their results.

use std::env;
use std::fs::{self, File};
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use crate::in_a_pod::{LINE, ROLE};
use crate::programs::Serving;
use crate::stage::{Stage, until};

/// One exchange, with its times and result.
#[derive(Debug, Clone)]
pub(crate) struct Outcome {
    /// Start on the monotonic clock, which all processes share, in microseconds.
    pub(crate) began_us: u64,
    pub(crate) took: Duration,
    /// The status, or the error.
    pub(crate) what: String,
}

impl Outcome {
    pub(crate) fn is_good(&self) -> bool {
        self.what == "200"
    }

    pub(crate) fn ended_us(&self) -> u64 {
        self.began_us + u64::try_from(self.took.as_micros()).unwrap_or(u64::MAX)
    }

    fn of(line: &str) -> Option<Outcome> {
        // The test harness may have written to the same line before.
        let (_, line) = line.split_once(LINE)?;
        let mut words = line.split(' ');
        let mut number = || words.next()?.parse::<u64>().ok();
        Some(Outcome {
            began_us: number()?,
            took: Duration::from_micros(number()?),
            what: words.next()?.to_owned(),
        })
    }
}

/// A running client.
pub(crate) struct Load {
    client: Child,
    file: PathBuf,
}

/// The connections that a client uses.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Kind {
    /// A new connection for every request.
    Anew,
    /// One connection, reopened when it ends.
    Kept,
    /// One connection that is forwarded as bytes, and never reopened.
    Talk,
}

impl Load {
    /// Starts a client, and waits until it has an answer.
    pub(crate) fn start(stage: &Stage, pod: &str, kind: Kind, to: &str) -> Load {
        static LOADS: AtomicU32 = AtomicU32::new(0);
        let number = LOADS.fetch_add(1, Ordering::Relaxed);
        let file = stage.folder().join(format!("load-{pod}-{number}"));
        let role = match kind {
            Kind::Anew => "anew",
            Kind::Kept => "kept",
            Kind::Talk => "talk",
        };
        let mut command = stage.own(pod, &format!("{role} {to}"));
        let client = command
            .stdin(Stdio::piped())
            .stdout(File::create(&file).expect("a file"))
            .spawn()
            .expect("a client");
        let load = Load { client, file };
        let what = format!("{pod} gets an answer from {to}");
        until(&what, || load.outcomes().iter().any(Outcome::is_good));
        load
    }

    /// The results up to now.
    pub(crate) fn outcomes(&self) -> Vec<Outcome> {
        let text = fs::read_to_string(&self.file).unwrap_or_default();
        let whole = text
            .rsplit_once('\n')
            .map_or("", |(whole, _unfinished)| whole);
        whole.lines().filter_map(Outcome::of).collect()
    }

    /// Stops the client: returns everything since its first good answer, in order of time.
    pub(crate) fn stop(mut self) -> Vec<Outcome> {
        drop(self.client.stdin.take());
        let _ended = self.client.wait();
        let outcomes = self.outcomes();
        let first = outcomes.iter().position(Outcome::is_good);
        outcomes[first.unwrap_or_default()..].to_vec()
    }
}

impl Drop for Load {
    fn drop(&mut self) {
        let _ended = self.client.kill();
        let _reaped = self.client.wait();
    }
}

/// The failed exchanges.
pub(crate) fn failures(outcomes: &[Outcome]) -> Vec<&Outcome> {
    outcomes.iter().filter(|one| !one.is_good()).collect()
}

/// The lines that a program of this binary has reported.
pub(crate) fn told(output: &str) -> Vec<&str> {
    let lines = output.lines().filter_map(|line| line.split_once(LINE));
    lines.map(|(_, told)| told).collect()
}

fn playing(mut command: Command, role: &str) -> Command {
    command.args(["--ignored", "--exact", "--nocapture", "in_a_pod::runs"]);
    command.env(ROLE, role);
    command
}

impl Stage {
    /// This test binary in a pod, with a role.
    pub(crate) fn own(&self, pod: &str, role: &str) -> Command {
        let program = env::current_exe().expect("this program");
        playing(self.pod(pod).command(program).expect("a pod"), role)
    }

    /// This test binary on a node, outside of its pods.
    pub(crate) fn own_on(&self, node: &str, role: &str) -> Command {
        let program = env::current_exe().expect("this program");
        playing(self.node(node).command(program).expect("a node"), role)
    }

    /// Starts a server of this binary, which answers HTTP and echoes.
    pub(crate) fn answer(&self, pod: &str, port: u16) -> Serving {
        let command = self.own(pod, &format!("serve {port}"));
        self.serve_by(pod, port, command)
    }

    /// Sends one request over a new connection.
    pub(crate) fn dial(&self, pod: &str, to: &str) -> Outcome {
        let mut command = self.own(pod, &format!("dial {to}"));
        let output = command.stdin(Stdio::null()).output().expect("runs");
        let said = String::from_utf8_lossy(&output.stdout);
        let outcome = said.lines().find_map(Outcome::of);
        outcome.unwrap_or_else(|| panic!("{pod} to {to}: {said}"))
    }
}
