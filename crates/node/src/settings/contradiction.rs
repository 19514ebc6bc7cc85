//! Values that are each within their range but contradict each other.

use super::SettingsError;
use super::source::{Source, Sources};

/// Fields that contradict each other, with reason and remedy.
#[derive(Debug)]
pub(super) struct Contradiction {
    /// All fields involved; the one to report comes first.
    pub(super) fields: Vec<&'static str>,
    pub(super) reason: String,
    /// How to correct it.
    pub(super) remedy: String,
}

impl Contradiction {
    /// Reports the first field that the file or a flag sets, and the sources of the others.
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

/// The first field that describes the mesh, if one is set for a node. Only the control plane may set these: otherwise
/// an operator could believe a node to be stricter than it is.
pub(super) fn not_a_nodes(sources: &Sources) -> Option<SettingsError> {
    let fields = [
        "mesh.mode",
        "mesh.trust_domain",
        "mesh.lazy_envoys",
        "mesh.address_ranges",
    ];
    let mut fields = fields.map(|field| (field, sources.of(field))).into_iter();
    let (field, source) = fields.find(|(_, source)| *source != Source::Default)?;
    Some(SettingsError {
        source,
        field: field.to_owned(),
        reason: "a node is told this by its control plane".to_owned(),
        remedy: "set it there (heddle control --config), and remove it here".to_owned(),
    })
}
