//! The mesh under demonstration: a `heddle up` of our own.

use std::env;
use std::fs::{self, File};
use std::io;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::time::{Duration, Instant};

use anyhow::{Context, anyhow, bail};
use serde::Deserialize;
use tokio::process::{Child, Command};
use tokio::time::{sleep, timeout};

use super::metrics::Reading;
use super::shopper::Browser;

/// How long the mesh may take until it is ready.
const START_LIMIT: Duration = Duration::from_secs(30);
/// How long a changed route may take until it is in effect.
const CHANGE_LIMIT: Duration = Duration::from_secs(5);
/// How long the mesh may take to finish what it has begun.
const STOP_LIMIT: Duration = Duration::from_secs(15);

/// A running `heddle up`.
pub(super) struct Mesh {
    heddle: PathBuf,
    socket: PathBuf,
    log: PathBuf,
    child: Child,
    /// Where the metrics are; known when it is ready.
    metrics: Option<SocketAddr>,
    browser: Browser,
}

/// What `heddle status --output json` says, as far as the demo uses it.
#[derive(Deserialize)]
pub(super) struct Status {
    ready: bool,
    metrics: Option<SocketAddr>,
    listeners: Vec<Listener>,
}

#[derive(Deserialize)]
struct Listener {
    kind: ListenerKind,
    caller: Option<String>,
    service: Option<String>,
    address: SocketAddr,
}

#[derive(Deserialize, PartialEq)]
#[serde(rename_all = "kebab-case")]
enum ListenerKind {
    Service,
    ForwardProxy,
}

impl Status {
    /// Where `caller` (none: anybody) reaches `service`.
    ///
    /// # Errors
    /// The mesh has no such listener.
    pub(super) fn address(
        &self,
        caller: Option<&str>,
        service: &str,
    ) -> anyhow::Result<SocketAddr> {
        self.listeners
            .iter()
            .filter(|listener| listener.kind == ListenerKind::Service)
            .find(|listener| {
                listener.caller.as_deref() == caller && listener.service.as_deref() == Some(service)
            })
            .map(|listener| listener.address)
            .with_context(|| format!("the mesh has no address of {service} for {caller:?}"))
    }

    /// The forward proxy of `caller`, if it has one.
    pub(super) fn forward_proxy(&self, caller: &str) -> Option<SocketAddr> {
        self.listeners
            .iter()
            .filter(|listener| listener.kind == ListenerKind::ForwardProxy)
            .find(|listener| listener.caller.as_deref() == Some(caller))
            .map(|listener| listener.address)
    }
}

impl Mesh {
    /// Starts `heddle up` on the manifests in `dir`, with its admin socket and its log in `scratch`.
    ///
    /// # Errors
    /// The program cannot be started.
    pub(super) fn start(heddle: &Path, dir: &Path, scratch: &Path) -> anyhow::Result<Self> {
        let heddle = find(heddle)?;
        let (socket, log) = (scratch.join("heddle.sock"), scratch.join("heddle.log"));
        let output = File::create(&log)?;
        // By way of `confine`, so that the mesh goes when we do, however that happens.
        let child = Command::new(env::current_exe()?)
            .args(["confine", "--parent", &std::process::id().to_string(), "--"])
            .arg(&heddle)
            .arg("up")
            .arg(dir)
            .arg("--socket")
            .arg(&socket)
            .args(["--metrics", "127.0.0.1:0"])
            .stdin(Stdio::null())
            .stdout(output.try_clone()?)
            .stderr(output)
            // Ctrl-C is for us alone: we stop the mesh when the shopper has gone.
            .process_group(0)
            .kill_on_drop(true)
            .spawn()
            .with_context(|| format!("cannot start {}", heddle.display()))?;
        let browser = Browser::new();
        Ok(Self {
            heddle,
            socket,
            log,
            child,
            metrics: None,
            browser,
        })
    }

    /// Waits until the mesh serves, and says where.
    ///
    /// # Errors
    /// It ended, or is not ready in time.
    pub(super) async fn ready(&mut self) -> anyhow::Result<Status> {
        let deadline = Instant::now() + START_LIMIT;
        loop {
            if let Some(status) = self.child.try_wait()? {
                bail!("heddle up ended: {status}");
            }
            match self.status().await {
                Ok(status) if status.ready => {
                    self.metrics = status.metrics;
                    return Ok(status);
                }
                outcome if Instant::now() > deadline => {
                    let said = outcome
                        .err()
                        .unwrap_or_else(|| anyhow!("it says so itself"));
                    return Err(said.context(format!("not ready within {START_LIMIT:?}")));
                }
                _ => sleep(Duration::from_millis(50)).await,
            }
        }
    }

    async fn status(&self) -> anyhow::Result<Status> {
        let output = Command::new(&self.heddle)
            .args(["status", "--output", "json", "--socket"])
            .arg(&self.socket)
            .output()
            .await?;
        if !output.status.success() {
            bail!(
                "heddle status: {}",
                String::from_utf8_lossy(&output.stderr).trim()
            );
        }
        serde_json::from_slice(&output.stdout).context("heddle status is not understood")
    }

    /// What to type, from this folder, to ask for the status.
    pub(super) fn status_command(&self) -> String {
        let here = env::current_dir().unwrap_or_default();
        let heddle = self.heddle.strip_prefix(here).unwrap_or(&self.heddle);
        format!(
            "{} status --socket {}",
            heddle.display(),
            self.socket.display()
        )
    }

    /// Reads the proxy's metrics.
    ///
    /// # Errors
    /// They cannot be read.
    pub(super) async fn metrics(&self) -> anyhow::Result<Reading> {
        let address = self.metrics.context("the mesh serves no metrics")?;
        let page = self
            .browser
            .get(&format!("http://{address}/metrics"), "text/plain")
            .await?;
        Ok(Reading::parse(&page))
    }

    /// Waits until the proxy has taken a newer configuration than `generation`, and says how long
    /// that took.
    ///
    /// # Errors
    /// It does not within five seconds.
    pub(super) async fn newer_than(&self, generation: u64) -> anyhow::Result<Duration> {
        let begun = Instant::now();
        while begun.elapsed() < CHANGE_LIMIT {
            if self.metrics().await?.generation() > generation {
                return Ok(begun.elapsed());
            }
            sleep(Duration::from_millis(10)).await;
        }
        bail!("the edited route is not in effect after {CHANGE_LIMIT:?}")
    }

    /// The end of what the mesh and its services have written.
    pub(super) fn last_words(&self) -> String {
        let log = fs::read_to_string(&self.log).unwrap_or_default();
        let lines: Vec<&str> = log.lines().collect();
        lines[lines.len().saturating_sub(30)..].join("\n")
    }

    /// Asks the mesh to finish, and waits until it has.
    ///
    /// # Errors
    /// It had already ended, does not end in time, or ends with an error.
    pub(super) async fn stop(mut self) -> anyhow::Result<()> {
        if let Some(status) = self.child.try_wait()? {
            bail!("heddle up ended by itself: {status}");
        }
        self.terminate().context("cannot stop heddle up")?;
        let status = timeout(STOP_LIMIT, self.child.wait())
            .await
            .with_context(|| format!("heddle up did not stop within {STOP_LIMIT:?}"))??;
        if !status.success() {
            bail!("heddle up did not stop cleanly: {status}");
        }
        Ok(())
    }

    fn terminate(&self) -> io::Result<()> {
        let pid = self.child.id().and_then(|id| i32::try_from(id).ok());
        let pid = pid
            .and_then(rustix::process::Pid::from_raw)
            .ok_or(io::ErrorKind::NotFound)?;
        Ok(rustix::process::kill_process(
            pid,
            rustix::process::Signal::TERM,
        )?)
    }
}

/// The path of a program, looked for as a shell looks for it.
fn find(program: &Path) -> anyhow::Result<PathBuf> {
    if program.components().count() > 1 {
        return Ok(program.to_owned());
    }
    let path = env::var_os("PATH").unwrap_or_default();
    env::split_paths(&path)
        .map(|dir| dir.join(program))
        .find(|found| found.is_file())
        .with_context(|| format!("there is no {} in PATH", program.display()))
}
