//! Changes of headers.

use envoy_types::pb::envoy::config::core::v3::header_value_option::HeaderAppendAction;
use envoy_types::pb::envoy::config::core::v3::{HeaderValue, HeaderValueOption};
use heddle_model::HeaderEdits;

/// The fields to replace and to add.
pub(super) fn put(edits: &HeaderEdits) -> Vec<HeaderValueOption> {
    let set = HeaderAppendAction::OverwriteIfExistsOrAdd;
    let add = HeaderAppendAction::AppendIfExistsOrAdd;
    let set = edits.set.iter().map(|field| option(field, set));
    let add = edits.add.iter().map(|field| option(field, add));
    set.chain(add).collect()
}

/// The fields to remove.
pub(super) fn remove(edits: &HeaderEdits) -> impl Iterator<Item = String> {
    edits.remove.iter().cloned()
}

/// Whether two sets of changes are about one field.
pub(super) fn share_a_field(one: &HeaderEdits, other: &HeaderEdits) -> bool {
    names(one).any(|name| names(other).any(|other| name.eq_ignore_ascii_case(other)))
}

fn names(edits: &HeaderEdits) -> impl Iterator<Item = &str> {
    let put = edits
        .set
        .iter()
        .chain(&edits.add)
        .map(|(name, _)| name.as_str());
    put.chain(edits.remove.iter().map(String::as_str))
}

fn option((name, value): &(String, String), action: HeaderAppendAction) -> HeaderValueOption {
    HeaderValueOption {
        header: Some(HeaderValue {
            key: name.clone(),
            // A single `%` would begin a command of Envoy's.
            value: value.replace('%', "%%"),
            ..HeaderValue::default()
        }),
        append_action: action.into(),
        keep_empty_value: true,
        ..HeaderValueOption::default()
    }
}
