//! Origin of each value: the settings file, a flag, or neither.

use std::collections::BTreeMap;
use std::fmt;
use std::path::{Path, PathBuf};

use serde::Deserialize;
use serde::de::IgnoredAny;
use serde_saphyr::Spanned;

/// Origin of a field's value.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Source {
    /// A settings file, and the line where one is known.
    File(PathBuf, Option<u64>),
    /// A flag, which takes precedence over the file.
    Flag(&'static str),
    /// Neither sets it.
    Default,
}

/// The file that was read, and the flags that were given.
#[derive(Debug, Default)]
pub(super) struct Sources {
    /// Path and text. A field's line is looked up in the text only when there is an error to report.
    file: Option<(PathBuf, String)>,
    /// Flags, by the field that each sets.
    flags: BTreeMap<&'static str, &'static str>,
}

impl Sources {
    /// Sources with a file and no flags yet.
    pub(super) fn of_file(path: &Path, text: String) -> Self {
        Sources {
            file: Some((path.to_owned(), text)),
            flags: BTreeMap::new(),
        }
    }

    /// Records that a flag sets a field.
    pub(super) fn flag(&mut self, flag: &'static str, field: &'static str) {
        self.flags.insert(field, flag);
    }

    /// Origin of a field's value.
    pub(super) fn of(&self, field: &str) -> Source {
        if let Some(&flag) = self.flags.get(field) {
            return Source::Flag(flag);
        }
        let in_file = self.file.as_ref();
        in_file
            .and_then(|(path, text)| Some(Source::File(path.clone(), Some(line(text, field)?))))
            .unwrap_or(Source::Default)
    }
}

impl fmt::Display for Source {
    /// The text after the field's name, as in "… is set in s.yaml:3".
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Source::File(path, Some(line)) => write!(f, "is set in {}:{line}", path.display()),
            Source::File(path, None) => write!(f, "is set in {}", path.display()),
            Source::Flag(flag) => write!(f, "is set by {flag}"),
            Source::Default => f.write_str("is the default"),
        }
    }
}

/// The fields of a section, by name.
type Section = BTreeMap<String, Spanned<IgnoredAny>>;

/// A valid settings file, parsed a second time to find the lines of its values.
#[derive(Default, Deserialize)]
#[serde(default)]
struct SettingsPlaces {
    mesh: Section,
    admin: Section,
    workloads: Section,
    proxy: ProxyPlaces,
    node: Section,
    control: Section,
    registry: Section,
    qos: Section,
}

/// Like [`SettingsPlaces`], for the sections within the sections `node` and `qos`.
#[derive(Default, Deserialize)]
#[serde(default)]
struct SettingsWithNode {
    node: NodePlaces,
    qos: QosPlaces,
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct QosPlaces {
    network: Section,
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct NodePlaces {
    interception: Section,
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct ProxyPlaces {
    workers: Section,
    bounds: Section,
}

/// Line of a field's value; `None` when the file does not set it.
fn line(text: &str, field: &str) -> Option<u64> {
    let places: SettingsPlaces = serde_saphyr::from_str(text).ok()?;
    let (section, name) = field.rsplit_once('.')?;
    let section = match section {
        "mesh" => &places.mesh,
        "admin" => &places.admin,
        "workloads" => &places.workloads,
        "proxy.workers" => &places.proxy.workers,
        "proxy.bounds" => &places.proxy.bounds,
        "node" => &places.node,
        "node.interception" => {
            let places: SettingsWithNode = serde_saphyr::from_str(text).ok()?;
            return Some(places.node.interception.get(name)?.referenced.line());
        }
        "qos" => &places.qos,
        "qos.network" => {
            let places: SettingsWithNode = serde_saphyr::from_str(text).ok()?;
            return Some(places.qos.network.get(name)?.referenced.line());
        }
        "control" => &places.control,
        "registry" => &places.registry,
        _ => return None,
    };
    Some(section.get(name)?.referenced.line())
}
