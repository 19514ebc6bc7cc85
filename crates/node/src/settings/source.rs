//! Where each value is from: the settings file, a flag, or neither.

use std::collections::BTreeMap;
use std::fmt;
use std::path::{Path, PathBuf};

use serde::Deserialize;
use serde::de::IgnoredAny;
use serde_saphyr::Spanned;

/// Where the value of a field is from.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Source {
    /// A settings file, and the line where one is known.
    File(PathBuf, Option<u64>),
    /// A flag, which wins over the file.
    Flag(&'static str),
    /// Neither sets it.
    Default,
}

/// The file that was read, and the flags that were given.
#[derive(Debug, Default)]
pub(super) struct Sources {
    /// The path, and the text: a line is looked for when there is an error to report.
    file: Option<(PathBuf, String)>,
    /// The flag by the field that it sets.
    flags: BTreeMap<&'static str, &'static str>,
}

impl Sources {
    /// Those of a file, without a flag yet.
    pub(super) fn of_file(path: &Path, text: String) -> Self {
        Sources {
            file: Some((path.to_owned(), text)),
            flags: BTreeMap::new(),
        }
    }

    /// Notes that a flag sets a field.
    pub(super) fn flag(&mut self, flag: &'static str, field: &'static str) {
        self.flags.insert(field, flag);
    }

    /// Where the value of a field is from.
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
    /// What follows the name of the field: "… is set in s.yaml:3".
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Source::File(path, Some(line)) => write!(f, "is set in {}:{line}", path.display()),
            Source::File(path, None) => write!(f, "is set in {}", path.display()),
            Source::Flag(flag) => write!(f, "is set by {flag}"),
            Source::Default => f.write_str("is the default"),
        }
    }
}

/// Each field of a section by its name.
type Section = BTreeMap<String, Spanned<IgnoredAny>>;

/// A settings file that was understood, read once more for the places of its values.
#[derive(Default, Deserialize)]
#[serde(default)]
struct SettingsPlaces {
    mesh: Section,
    admin: Section,
    workloads: Section,
    proxy: ProxyPlaces,
    control: Section,
    registry: Section,
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct ProxyPlaces {
    workers: Section,
    bounds: Section,
}

/// The line of the value of a field; none when the file does not set it.
fn line(text: &str, field: &str) -> Option<u64> {
    let places: SettingsPlaces = serde_saphyr::from_str(text).ok()?;
    let (section, name) = field.rsplit_once('.')?;
    let section = match section {
        "mesh" => &places.mesh,
        "admin" => &places.admin,
        "workloads" => &places.workloads,
        "proxy.workers" => &places.proxy.workers,
        "proxy.bounds" => &places.proxy.bounds,
        "control" => &places.control,
        "registry" => &places.registry,
        _ => return None,
    };
    Some(section.get(name)?.referenced.line())
}
