//! The file of a lab: one YAML document.

use std::collections::BTreeMap;
use std::fmt;
use std::path::{Path, PathBuf};

use anyhow::{Context, bail};
use heddle_model::WorkloadName;
use serde::{Deserialize, Serialize};

mod node;
#[cfg(test)]
mod tests;

pub(super) use node::NodeEntry;

/// Limit of a lab's name, which is a prefix of names of namespaces and folders.
const MAX_NAME: usize = 20;
/// Limit for reading the file.
const MAX_FILE_BYTES: u64 = 1 << 20;
/// Upper limit of a pod's `cpus`.
const MAX_CPUS: f64 = 1024.0;

/// The fields of the file.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct File {
    pub(super) name: LabName,
    pub(super) nodes: Vec<NodeEntry>,
    pub(super) manifests: PathBuf,
    #[serde(default)]
    pub(super) settings: Option<PathBuf>,
    #[serde(default)]
    pub(super) node_settings: Option<PathBuf>,
    #[serde(default)]
    pub(super) carried: Carried,
    #[serde(default)]
    pub(super) hooks: Hooks,
    #[serde(default)]
    pub(super) restart: Restart,
    #[serde(default)]
    pub(super) pods: BTreeMap<WorkloadName, PodSettings>,
}

/// The name of a lab: a lower-case letter, then lower-case letters and digits.
///
/// Dashes are not allowed, so that no name of `shop-two` can begin like one of `shop`.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct LabName(String);

impl LabName {
    /// Accepts 1 to 20 characters of `a-z` and `0-9`, the first a letter.
    ///
    /// # Errors
    /// The text breaks these rules; the error repeats them.
    pub fn parse(text: &str) -> anyhow::Result<Self> {
        let inner = |b: &u8| b.is_ascii_lowercase() || b.is_ascii_digit();
        let bytes = text.as_bytes();
        if bytes.first().is_some_and(u8::is_ascii_lowercase)
            && bytes.len() <= MAX_NAME
            && bytes.iter().all(inner)
        {
            return Ok(Self(text.to_owned()));
        }
        bail!(
            "{text:?} is not a name for a lab, expected 1 to {MAX_NAME} of a-z and 0-9, first a letter"
        )
    }

    /// The name as text.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl fmt::Display for LabName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl TryFrom<String> for LabName {
    type Error = anyhow::Error;

    fn try_from(text: String) -> anyhow::Result<Self> {
        Self::parse(&text)
    }
}

impl From<LabName> for String {
    fn from(name: LabName) -> String {
        name.0
    }
}

impl std::str::FromStr for LabName {
    type Err = anyhow::Error;

    fn from_str(text: &str) -> anyhow::Result<Self> {
        Self::parse(text)
    }
}

/// What carries the pods' traffic.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Carried {
    /// One proxy per node.
    #[default]
    Node,
    /// One proxy per pod: every pod is a node of the mesh.
    Pod,
    /// No proxy: pods reach each other directly. Names of Services resolve to the addresses of their pods, since
    /// nothing serves cluster addresses.
    Nothing,
}

impl fmt::Display for Carried {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Carried::Node => "one proxy per node",
            Carried::Pod => "one proxy per pod",
            Carried::Nothing => "nothing",
        })
    }
}

/// How a proxy intercepts traffic.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Hooks {
    /// BPF if this machine offers it, else packet filters.
    #[default]
    Auto,
    /// By BPF programs.
    Bpf,
    /// By packet filters in every pod.
    Nft,
}

impl Hooks {
    /// What `heddle node --hooks` takes.
    pub(super) fn as_str(self) -> &'static str {
        match self {
            Hooks::Auto => "auto",
            Hooks::Bpf => "bpf",
            Hooks::Nft => "nft",
        }
    }
}

/// What happens when a control plane or a node of the mesh ends.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Restart {
    /// It is restarted, as by a service manager.
    #[default]
    Always,
    /// It stays down until `heddle-lab restart`.
    Never,
}

/// A family of addresses.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub enum Family {
    /// IPv4.
    #[serde(rename = "ipv4")]
    V4,
    /// IPv6.
    #[serde(rename = "ipv6")]
    V6,
}

/// Settings of a pod that manifests do not have.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub(super) struct PodSettings {
    pub(super) families: Vec<Family>,
    pub(super) cpus: Option<f64>,
    pub(super) enrolled: bool,
}

impl Default for PodSettings {
    fn default() -> Self {
        Self {
            families: vec![Family::V4, Family::V6],
            cpus: None,
            enrolled: true,
        }
    }
}

impl File {
    /// Reads and checks a file, and makes its paths absolute: they are relative to the file's folder.
    ///
    /// # Errors
    /// Names the file, the field, the reason and the remedy.
    pub(super) fn read(path: &Path) -> anyhow::Result<Self> {
        let shown = path.display();
        let size = std::fs::metadata(path)
            .with_context(|| format!("{shown}: it cannot be read (give the file of a lab)"))?
            .len();
        if size > MAX_FILE_BYTES {
            bail!("{shown}: it has {size} bytes, expected at most {MAX_FILE_BYTES}");
        }
        let text = std::fs::read_to_string(path).with_context(|| shown.to_string())?;
        let mut file = Self::parse(&text).with_context(|| shown.to_string())?;
        let folder = path.parent().unwrap_or(Path::new(""));
        file.manifests = std::path::absolute(folder.join(&file.manifests))?;
        for (field, settings) in file.settings_files() {
            *settings = std::path::absolute(folder.join(&settings))?;
            if !settings.is_file() {
                bail!(
                    "{shown}: {field}: there is no file {} (it is looked for beside the file)",
                    settings.display()
                );
            }
        }
        if !file.manifests.is_dir() {
            bail!(
                "{shown}: manifests: there is no folder {} (it is looked for beside the file)",
                file.manifests.display()
            );
        }
        Ok(file)
    }

    /// Every settings file that it names, with the path of the field.
    fn settings_files(&mut self) -> impl Iterator<Item = (String, &mut PathBuf)> {
        let of_control = self.settings.iter_mut();
        let of_nodes = self.node_settings.iter_mut();
        let each = self.nodes.iter_mut().enumerate().filter_map(|(at, node)| {
            let settings = node.settings.as_mut()?;
            Some((format!("nodes[{at}].settings"), settings))
        });
        of_control
            .map(|settings| ("settings".to_owned(), settings))
            .chain(of_nodes.map(|settings| ("node_settings".to_owned(), settings)))
            .chain(each)
    }

    fn parse(text: &str) -> anyhow::Result<Self> {
        let mut field = String::new();
        let parsed: Result<File, _> =
            serde_saphyr::with_deserializer_from_str(text, |deserializer| {
                serde_path_to_error::deserialize(deserializer).map_err(|error| {
                    field = error.path().to_string();
                    error.into_inner()
                })
            });
        let file = parsed.map_err(|error| refused(&field, &error))?;
        file.check()?;
        Ok(file)
    }

    fn check(&self) -> anyhow::Result<()> {
        if self.nodes.is_empty() {
            bail!("nodes: there is none (name at least one)");
        }
        let max = super::address::MAX_NODES;
        if self.nodes.len() > max {
            bail!(
                "nodes: there are {}, expected at most {max}",
                self.nodes.len()
            );
        }
        for (position, node) in self.nodes.iter().enumerate() {
            let name = &node.name;
            if self.nodes[..position].iter().any(|one| one.name == *name) {
                bail!("nodes[{position}]: {name} is written twice (rename one)");
            }
        }
        for (pod, settings) in &self.pods {
            settings.check().map_err(|reason| {
                let (field, reason) = reason;
                anyhow::anyhow!("pods.{pod}.{field}: {reason}")
            })?;
        }
        Ok(())
    }
}

impl PodSettings {
    fn check(&self) -> Result<(), (&'static str, String)> {
        let again = |(i, family): (usize, &Family)| self.families[..i].contains(family);
        if self.families.is_empty() || self.families.iter().enumerate().any(again) {
            let reason = "expected ipv4, ipv6 or both, each once, the first one preferred";
            return Err(("families", reason.to_owned()));
        }
        match self.cpus {
            Some(cpus) if !(0.01..=MAX_CPUS).contains(&cpus) => Err((
                "cpus",
                format!("{cpus} is not a number of processors, expected 0.01 to {MAX_CPUS}"),
            )),
            _ => Ok(()),
        }
    }
}

/// The parser's error, with the line and the field first.
fn refused(field: &str, error: &serde_saphyr::Error) -> anyhow::Error {
    let error = error.without_snippet();
    let text = error.to_string();
    let reason = text.split(" at line ").next().unwrap_or(&text).to_owned();
    let line = error.location().map(|at| format!("line {}: ", at.line()));
    let line = line.unwrap_or_default();
    match field.trim_matches(['.', '?']) {
        "" => anyhow::anyhow!("{line}{reason} (docs/lab.md says what a lab's file holds)"),
        field => anyhow::anyhow!("{line}{field}: {reason}"),
    }
}
