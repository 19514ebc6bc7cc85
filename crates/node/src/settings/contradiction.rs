//! Values that are each within their range and cannot be together.

use std::collections::BTreeMap;
use std::path::Path;

use serde::Deserialize;
use serde::de::IgnoredAny;
use serde_saphyr::Spanned;

use super::SettingsError;

/// Which fields contradict each other, why, and the remedy.
#[derive(Debug)]
pub(super) struct Contradiction {
    /// Those of which at least one was set, the one to blame first.
    pub(super) fields: &'static [&'static str],
    /// What contradicts what.
    pub(super) reason: String,
    /// What to write instead.
    pub(super) remedy: String,
}

impl Contradiction {
    /// The first of the fields that the file sets, with its line.
    pub(super) fn at(self, file: &Path, text: &str) -> SettingsError {
        let set = self
            .fields
            .iter()
            .find_map(|field| Some((*field, line(text, field)?)));
        SettingsError {
            file: file.to_owned(),
            line: set.map(|(_, line)| line),
            field: set
                .map(|(field, _)| field)
                .or(self.fields.first().copied())
                .unwrap_or_default()
                .to_owned(),
            reason: self.reason,
            remedy: self.remedy,
        }
    }
}

/// The first field that says what the mesh is: a control plane does, and a node that said otherwise would be
/// believed to be stricter than it is.
pub(super) fn not_a_nodes(file: &Path, text: &str) -> Option<SettingsError> {
    let fields = ["mesh.mode", "mesh.trust_domain"];
    let (field, line) = fields
        .into_iter()
        .find_map(|field| Some((field, line(text, field)?)))?;
    Some(SettingsError {
        file: file.to_owned(),
        line: Some(line),
        field: field.to_owned(),
        reason: "a node is told this by its control plane".to_owned(),
        remedy: "set it there (heddle control --config), and remove it here".to_owned(),
    })
}

/// Each field of a section by its name.
type Section = BTreeMap<String, Spanned<IgnoredAny>>;

/// A settings file that was understood, read once more for the places of its values.
#[derive(Default, Deserialize)]
#[serde(default)]
struct SettingsPlaces {
    mesh: Section,
    registry: Section,
    workloads: Section,
    proxy: ProxyPlaces,
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct ProxyPlaces {
    workers: Section,
    bounds: Section,
}

/// Where the value of a field stands; none when the file does not set it.
fn line(text: &str, field: &str) -> Option<u64> {
    let places: SettingsPlaces = serde_saphyr::from_str(text).ok()?;
    let (section, name) = field.rsplit_once('.')?;
    let section = match section {
        "mesh" => &places.mesh,
        "registry" => &places.registry,
        "workloads" => &places.workloads,
        "proxy.workers" => &places.proxy.workers,
        "proxy.bounds" => &places.proxy.bounds,
        _ => return None,
    };
    Some(section.get(name)?.referenced.line())
}
