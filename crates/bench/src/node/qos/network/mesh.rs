//! Heddle in the node, and both pods as its callers.

use std::ffi::OsString;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use anyhow::Context;

use super::stage::{Flow, PORT, Stage};
use crate::child::{Child, Confinement, words};

/// It serves after this.
const READY_WITHIN: Duration = Duration::from_secs(10);

/// A running Heddle.
pub(super) struct Mesh {
    _child: Child,
    heddle: PathBuf,
    socket: PathBuf,
    _folder: tempfile::TempDir,
}

impl Mesh {
    /// Starts it, and waits until it serves.
    ///
    /// # Errors
    /// When it does not.
    pub(super) fn start(stage: &Stage, heddle: &Path) -> anyhow::Result<Mesh> {
        let folder = tempfile::Builder::new().prefix("heddle-lab-").tempdir()?;
        let manifests = folder.path().join("mesh");
        fs::create_dir(&manifests)?;
        let mut text = String::new();
        for flow in Flow::ALL {
            let (name, class) = (flow.name(), flow.name());
            let (to, address) = (flow.server(), flow.workload());
            text.push_str(&format!(
                "apiVersion: v1\nkind: Service\nmetadata: {{name: far-{name}, namespace: site}}\n\
                 spec: {{ports: [{{name: iperf, port: {PORT}, appProtocol: tcp}}]}}\n\
                 ---\napiVersion: discovery.k8s.io/v1\nkind: EndpointSlice\nmetadata: {{name: far-{name}, namespace: \
                 site, labels: {{kubernetes.io/service-name: far-{name}}}}}\naddressType: IPv4\n\
                 endpoints: [{{addresses: [{to}]}}]\nports: [{{name: iperf, port: {PORT}}}]\n\
                 ---\napiVersion: heddle.dev/v1alpha1\nkind: LocalWorkload\nmetadata: {{name: {name}, namespace: site, \
                 labels: {{heddle.dev/class: {class}}}}}\nspec: {{address: {address}}}\n---\n"
            ));
        }
        fs::write(manifests.join("all.yaml"), text)?;
        let socket = folder.path().join("socket");
        let command: Vec<OsString> = words([
            heddle.as_os_str(),
            "up".as_ref(),
            manifests.as_os_str(),
            "--socket".as_ref(),
            socket.as_os_str(),
            "--metrics".as_ref(),
            "none".as_ref(),
        ]);
        let log = folder.path().join("heddle.log");
        let command = stage.in_node(command);
        let mut child = Child::start("heddle up", &Confinement::default(), &command, &log, false)?;
        child.wait_until(READY_WITHIN, || {
            let all = Flow::ALL.map(|flow| listener(heddle, &socket, flow).ok());
            all.iter().all(Option::is_some).then_some(())
        })?;
        Ok(Mesh {
            _child: child,
            heddle: heddle.to_owned(),
            socket,
            _folder: folder,
        })
    }

    /// Where the flow's pod reaches its server.
    ///
    /// # Errors
    /// When Heddle does not say so.
    pub(super) fn listener(&self, flow: Flow) -> anyhow::Result<String> {
        listener(&self.heddle, &self.socket, flow)
    }
}

fn listener(heddle: &Path, socket: &Path, flow: Flow) -> anyhow::Result<String> {
    let output = Command::new(heddle)
        .args(["status", "--output", "json", "--socket"])
        .arg(socket)
        .output()?;
    let status: serde_json::Value = serde_json::from_slice(&output.stdout)?;
    let listeners = status["listeners"].as_array().context("no listeners")?;
    let caller = format!("site/{}", flow.name());
    let service = format!("site/far-{}", flow.name());
    let its = listeners
        .iter()
        .find(|one| one["caller"] == caller.as_str() && one["service"] == service.as_str());
    let address = its.and_then(|one| one["address"].as_str()?.rsplit_once(':'));
    let (address, _) = address.context("no listener of the flow")?;
    Ok(address.to_owned())
}
