//! An etcd of a test's own, and its providers.

use std::io::Write;
use std::net::{SocketAddr, TcpListener};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use rustix::process::{Pid, Signal, kill_process};

use crate::harness::{eventually, text};

/// Attempts with other ports, in case another process takes the chosen ones.
const MAX_TRIES: usize = 5;
/// Most operations of one transaction that the test's etcd accepts.
const MAX_OPS: &str = "2000";

/// A running etcd with one member. Dropping it kills it.
pub(crate) struct Etcd {
    child: Child,
    data: PathBuf,
    client: SocketAddr,
    peer: SocketAddr,
    /// The folder with `ca.pem`, `own.pem` and `own.key`, if it asks for certificates.
    tls: Option<PathBuf>,
}

impl Etcd {
    /// Starts one with its data in that folder, and waits until it answers.
    pub(crate) fn start(data: &Path) -> Etcd {
        Self::start_with(data, None)
    }

    /// Like [`Etcd::start`], with certificates on both sides, which are created in the folder `tls`.
    pub(crate) fn secured(data: &Path, tls: &Path) -> Etcd {
        certificates(tls);
        Self::start_with(data, Some(tls))
    }

    fn start_with(data: &Path, tls: Option<&Path>) -> Etcd {
        for _ in 0..MAX_TRIES {
            // Both are bound at the same time, so that they differ.
            let free = [(); 2].map(|()| TcpListener::bind("127.0.0.1:0").expect("a port"));
            let [client, peer] = free
                .each_ref()
                .map(|socket| socket.local_addr().expect("an address"));
            drop(free);
            let mut etcd = Etcd {
                child: Self::spawn(data, client, peer, tls),
                data: data.to_owned(),
                client,
                peer,
                tls: tls.map(Path::to_owned),
            };
            if etcd.answers() {
                return etcd;
            }
            drop(etcd);
            let _there_is_none = std::fs::remove_dir_all(data);
        }
        panic!("etcd does not run")
    }

    fn spawn(data: &Path, client: SocketAddr, peer: SocketAddr, tls: Option<&Path>) -> Child {
        let scheme = tls.map_or("http", |_| "https");
        let (client, peer) = (format!("{scheme}://{client}"), format!("http://{peer}"));
        let mut command = Command::new("etcd");
        if let Some(tls) = tls {
            command.arg("--client-cert-auth");
            for (flag, file) in [
                ("--trusted-ca-file", "ca.pem"),
                ("--cert-file", "own.pem"),
                ("--key-file", "own.key"),
            ] {
                command.arg(flag).arg(tls.join(file));
            }
        }
        command
            .arg("--data-dir")
            .arg(data)
            .args([
                "--listen-client-urls",
                &client,
                "--advertise-client-urls",
                &client,
            ])
            .args([
                "--listen-peer-urls",
                &peer,
                "--initial-advertise-peer-urls",
                &peer,
            ])
            .args(["--initial-cluster", &format!("default={peer}")])
            .args([
                "--bcrypt-cost",
                "4",
                "--max-txn-ops",
                MAX_OPS,
                "--logger",
                "zap",
                "--log-outputs",
                "stderr",
            ])
            // Without this, Debian's etcd refuses to run on architectures on which it is not tested.
            .env("ETCD_UNSUPPORTED_ARCH", "arm64")
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .expect("there is an etcd: `make setup` installs it")
    }

    /// Waits until it answers or has ended; returns whether it answers.
    fn answers(&mut self) -> bool {
        let mut runs = true;
        eventually("etcd answers", || {
            runs = self.child.try_wait().expect("a child of ours").is_none();
            let answer = self.try_ctl(&["--command-timeout=1s", "get", "x"], "");
            answer.is_ok() || !runs
        });
        runs
    }

    /// URL for `--etcd`.
    pub(crate) fn url(&self) -> String {
        let scheme = self.tls.as_ref().map_or("http", |_| "https");
        format!("{scheme}://{}", self.client)
    }

    pub(crate) fn kill(&mut self) {
        self.child.kill().expect("it runs");
        self.child.wait().expect("a child of ours");
    }

    /// Starts it again where it was, and waits until it answers.
    pub(crate) fn restart(&mut self) {
        self.child = Self::spawn(&self.data, self.client, self.peer, self.tls.as_deref());
        assert!(self.answers(), "it runs again");
    }

    /// Kills it and removes everything that it holds.
    pub(crate) fn forget(&mut self) {
        self.kill();
        std::fs::remove_dir_all(&self.data).expect("removed");
    }

    /// Runs `etcdctl` and returns its output.
    pub(crate) fn ctl(&self, args: &[&str]) -> String {
        self.ctl_with(args, "")
    }

    /// Like [`Etcd::ctl`], with this standard input.
    pub(crate) fn ctl_with(&self, args: &[&str], input: &str) -> String {
        self.try_ctl(args, input)
            .unwrap_or_else(|said| panic!("etcdctl {args:?}: {said}"))
    }

    fn try_ctl(&self, args: &[&str], input: &str) -> Result<String, String> {
        let mut command = Command::new("etcdctl");
        command.args(["--endpoints", &self.url()]);
        if let Some(tls) = &self.tls {
            for (flag, file) in [
                ("--cacert", "ca.pem"),
                ("--cert", "own.pem"),
                ("--key", "own.key"),
            ] {
                command.arg(flag).arg(tls.join(file));
            }
        }
        let mut child = command
            .args(args)
            .env("ETCDCTL_API", "3")
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .expect("there is an etcdctl: `make setup` installs it");
        let written = child
            .stdin
            .take()
            .map(|mut to| to.write_all(input.as_bytes()));
        let output = child.wait_with_output().expect("a child of ours");
        written.expect("piped").map_err(|error| error.to_string())?;
        match output.status.success() {
            true => Ok(text(&output.stdout)),
            false => Err(text(&output.stderr)),
        }
    }

    /// A lease of ten minutes.
    pub(crate) fn lease(&self) -> String {
        let said = self.ctl(&["lease", "grant", "600"]);
        said.split_whitespace().nth(1).expect("an id").to_owned()
    }

    /// The keys of all providers.
    pub(crate) fn keys(&self) -> Vec<String> {
        let said = self.ctl(&["get", "--prefix", "--keys-only", "/heddle/v1/providers/"]);
        said.lines()
            .filter(|line| !line.is_empty())
            .map(str::to_owned)
            .collect()
    }

    /// Current revision of etcd.
    pub(crate) fn revision(&self) -> u64 {
        let said = self.ctl(&["get", "x", "--write-out=json"]);
        let answer: serde_json::Value = serde_json::from_str(&said).expect("JSON");
        answer["header"]["revision"].as_u64().expect("a revision")
    }
}

impl Drop for Etcd {
    fn drop(&mut self) {
        let _gone = self.child.kill();
        let _reaped = self.child.wait();
    }
}

/// Creates an authority, and one certificate that serves for both server and client.
fn certificates(folder: &Path) {
    let mut ca = rcgen::CertificateParams::default();
    ca.is_ca = rcgen::IsCa::Ca(rcgen::BasicConstraints::Unconstrained);
    let ca_key = rcgen::KeyPair::generate().expect("a key");
    let signed = ca.self_signed(&ca_key).expect("a certificate");
    let issuer = rcgen::Issuer::new(ca, ca_key);
    let own = rcgen::CertificateParams::new(["127.0.0.1".to_owned()]).expect("an address");
    let own_key = rcgen::KeyPair::generate().expect("a key");
    let own = own.signed_by(&own_key, &issuer).expect("a certificate");
    std::fs::create_dir(folder).expect("a folder");
    for (file, text) in [
        ("ca.pem", signed.pem()),
        ("own.pem", own.pem()),
        ("own.key", own_key.serialize_pem()),
    ] {
        std::fs::write(folder.join(file), text).expect("written");
    }
}

/// A running `heddle register`. Dropping it kills it.
pub(crate) struct Registrar {
    child: Child,
    lines: std::sync::mpsc::Receiver<String>,
}

impl Registrar {
    /// Registers `service` at an address.
    pub(crate) fn start(etcd: &Etcd, service: &str, address: SocketAddr, more: &[&str]) -> Self {
        let mut child = Command::new(env!("CARGO_BIN_EXE_heddle"))
            .args(["register", service, "--address", &address.to_string()])
            .args(["--etcd", &etcd.url()])
            .args(more)
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::piped())
            .spawn()
            .expect("the binary runs");
        let lines = crate::harness::lines(child.stderr.take().expect("piped"));
        Registrar { child, lines }
    }

    /// Waits for a line with this text on standard error.
    pub(crate) fn line(&self, text: &str) -> String {
        crate::harness::line_with(&self.lines, text)
    }

    /// The lines that are there already.
    pub(crate) fn lines_so_far(&self) -> Vec<String> {
        self.lines.try_iter().collect()
    }

    pub(crate) fn signal(&self, signal: Signal) {
        let pid = Pid::from_raw(self.child.id().cast_signed()).expect("a process id");
        kill_process(pid, signal).expect("it runs");
    }

    /// Waits for its end and returns its exit code.
    pub(crate) fn code(&mut self) -> Option<i32> {
        let mut status = None;
        eventually("the registrar ends", || {
            status = self.child.try_wait().expect("a child of ours");
            status.is_some()
        });
        status.and_then(|status| status.code())
    }

    /// Kills it, so that it cannot take the registration back.
    pub(crate) fn kill(&mut self) {
        self.child.kill().expect("it runs");
        self.child.wait().expect("a child of ours");
    }
}

impl Drop for Registrar {
    fn drop(&mut self) {
        let _gone = self.child.kill();
        let _reaped = self.child.wait();
    }
}

/// Longest real life of a lease of two seconds: etcd checks for expired leases every half second, and extended it by a
/// second when the member was elected.
pub(crate) const LEASE_LASTS: Duration = Duration::from_secs(6);
