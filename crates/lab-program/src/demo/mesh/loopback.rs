//! The mesh as child processes, with a loopback address for every workload: any user may run this.

use std::fs::OpenOptions;
use std::io::Write;
use std::net::SocketAddr;
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use anyhow::bail;
use tokio::time::sleep;

use super::{NODES, SETTINGS};
use crate::demo::answers::ControlStatus;
use crate::demo::process::LoggedProcess;
use crate::demo::program::Program;

/// The processes of the mesh.
pub(in crate::demo) struct Loopback {
    scratch: PathBuf,
    control: LoggedProcess,
    pub(super) control_socket: PathBuf,
    nodes: Vec<LoggedProcess>,
}

impl Loopback {
    /// Starts the control plane with the manifests in `dir`. State, sockets and logs go to `scratch`.
    ///
    /// # Errors
    /// The program cannot be started.
    pub(in crate::demo) fn start(
        heddle: &Program,
        dir: &Path,
        scratch: &Path,
    ) -> anyhow::Result<Self> {
        let at = |name: &str| scratch.join(name);
        let (socket, settings) = (at("control.sock"), at("control.yaml"));
        std::fs::write(&settings, SETTINGS)?;
        let mut arguments = vec![PathBuf::from("control"), dir.to_owned()];
        for (flag, value) in [
            ("--state", at("control")),
            ("--socket", socket.clone()),
            ("--config", settings),
            ("--listen", "127.0.0.1:0".into()),
            ("--metrics", "127.0.0.1:0".into()),
        ] {
            arguments.extend([flag.into(), value]);
        }
        let control = LoggedProcess::start(heddle, "heddle control", arguments, at("control.log"))?;
        Ok(Self {
            scratch: scratch.to_owned(),
            control,
            control_socket: socket,
            nodes: Vec::new(),
        })
    }

    /// Waits for the control plane, and starts both nodes, each with a token of its own; returns their admin
    /// sockets.
    ///
    /// # Errors
    /// A process ended, or is not ready by `deadline`.
    pub(super) async fn join(
        &mut self,
        heddle: &Program,
        deadline: Instant,
    ) -> anyhow::Result<Vec<PathBuf>> {
        let control = loop {
            self.control.is_there()?;
            let socket = &self.control_socket;
            match heddle.answer(&["status"], socket, &[]).await {
                Ok(ControlStatus {
                    ready: true,
                    listen,
                }) => break listen,
                Err(error) if Instant::now() > deadline => return Err(error),
                _ if Instant::now() > deadline => bail!("heddle control is not ready"),
                _ => sleep(Duration::from_millis(50)).await,
            }
        };
        let mut sockets = Vec::new();
        for name in NODES {
            sockets.push(self.start_node(heddle, name, control).await?);
        }
        Ok(sockets)
    }

    async fn start_node(
        &mut self,
        heddle: &Program,
        name: &str,
        control: SocketAddr,
    ) -> anyhow::Result<PathBuf> {
        let socket = &self.control_socket;
        let token = ["token", "create", name];
        let token = heddle.ask(&token, socket, &[]).await?.stdout;
        let at = |end: &str| self.scratch.join(format!("{name}{end}"));
        let mut file = OpenOptions::new()
            .write(true)
            .create_new(true)
            .mode(0o600)
            .open(at(".token"))?;
        file.write_all(token.as_bytes())?;
        let mut arguments: Vec<PathBuf> = vec!["node".into(), "--run".into()];
        for (flag, value) in [
            ("--name", name.into()),
            ("--control", control.to_string().into()),
            ("--listen", "127.0.0.1:0".into()),
            ("--token-file", at(".token")),
            ("--state", at("")),
            ("--socket", at(".sock")),
            ("--metrics", "127.0.0.1:0".into()),
        ] {
            arguments.extend([flag.into(), value]);
        }
        let what = format!("heddle node {name}");
        let process = LoggedProcess::start(heddle, &what, arguments, at(".log"))?;
        let socket = at(".sock");
        self.nodes.push(process);
        Ok(socket)
    }

    /// # Errors
    /// A process has ended.
    pub(super) fn are_there(&mut self) -> anyhow::Result<()> {
        let mut all = self.nodes.iter_mut().chain([&mut self.control]);
        all.try_for_each(LoggedProcess::is_there)
    }

    pub(super) fn last_words(&mut self) -> String {
        let all = self.nodes.iter_mut().chain([&mut self.control]);
        all.map(LoggedProcess::last_words)
            .collect::<Vec<_>>()
            .join("\n")
    }

    /// Sends SIGTERM to every process, the nodes first, and waits until they have ended.
    ///
    /// # Errors
    /// One had already ended, does not end in time, or ends with an error.
    pub(super) async fn stop(self) -> anyhow::Result<()> {
        let mut outcome = Ok(());
        for node in self.nodes {
            outcome = outcome.and(node.stop().await);
        }
        outcome.and(self.control.stop().await)
    }
}
