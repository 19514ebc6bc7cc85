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
    pub(super) reason: String,
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

/// Each field of a section by its name.
type Section = BTreeMap<String, Spanned<IgnoredAny>>;

/// A settings file that was understood, read once more for the places of its values.
#[derive(Default, Deserialize)]
#[serde(default)]
struct Places {
    workloads: Section,
    proxy: ProxyPlaces,
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct ProxyPlaces {
    workers: Section,
}

/// Where the value of a field stands; none when the file does not set it.
fn line(text: &str, field: &str) -> Option<u64> {
    let places: Places = serde_saphyr::from_str(text).ok()?;
    let (section, name) = field.rsplit_once('.')?;
    let section = match section {
        "workloads" => &places.workloads,
        "proxy.workers" => &places.proxy.workers,
        _ => return None,
    };
    Some(section.get(name)?.referenced.line())
}
