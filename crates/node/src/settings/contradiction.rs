//! Values that are each within their range and cannot be together.

use super::SettingsError;
use super::source::{Source, Sources};

/// Which fields contradict each other, why, and the remedy.
#[derive(Debug)]
pub(super) struct Contradiction {
    /// All whose values count, the one to blame first.
    pub(super) fields: Vec<&'static str>,
    /// What contradicts what.
    pub(super) reason: String,
    /// What to write instead.
    pub(super) remedy: String,
}

impl Contradiction {
    /// Blames the first of the fields that the file or a flag sets, and says of the others where they are from.
    pub(super) fn at(self, sources: &Sources) -> SettingsError {
        let mut fields: Vec<(&str, Source)> = self
            .fields
            .iter()
            .map(|field| (*field, sources.of(field)))
            .collect();
        let set = fields
            .iter()
            .position(|(_, source)| *source != Source::Default);
        let (field, source) = match fields.is_empty() {
            true => ("", Source::Default),
            false => fields.remove(set.unwrap_or_default()),
        };
        let others = fields
            .iter()
            .map(|(field, source)| format!("; {field} {source}"));
        SettingsError {
            source,
            field: field.to_owned(),
            reason: self.reason + &others.collect::<String>(),
            remedy: self.remedy,
        }
    }
}

/// The first field that says what the mesh is: a control plane does, and a node that said otherwise would be
/// believed to be stricter than it is.
pub(super) fn not_a_nodes(sources: &Sources) -> Option<SettingsError> {
    let fields = ["mesh.mode", "mesh.trust_domain"];
    let mut fields = fields.map(|field| (field, sources.of(field))).into_iter();
    let (field, source) = fields.find(|(_, source)| *source != Source::Default)?;
    Some(SettingsError {
        source,
        field: field.to_owned(),
        reason: "a node is told this by its control plane".to_owned(),
        remedy: "set it there (heddle control --config), and remove it here".to_owned(),
    })
}
