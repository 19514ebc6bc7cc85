//! Modes: the requirements on callers, set by label.

use std::collections::BTreeMap;

use heddle_model::{Mode, Namespace};

use super::index::Index;
use super::{Scope, did_you_mean};
use crate::findings::Findings;
use crate::manifest::node::FieldPath;
use crate::manifest::{MODE_LABEL, Object};

/// The modes that Namespaces set.
pub(super) fn by_namespace(
    index: &Index<'_>,
    findings: &mut Findings,
) -> BTreeMap<Namespace, Mode> {
    index
        .namespaces
        .iter()
        .filter_map(|(name, object)| {
            let mode = of(object, &mut Scope::of(object, findings))?;
            Some((name.clone(), mode))
        })
        .collect()
}

/// The mode that an object's label sets; `None` without a label or with an invalid one.
pub(super) fn of(object: &Object, scope: &mut Scope<'_>) -> Option<Mode> {
    let text = object.metadata.labels.get(MODE_LABEL)?;
    let mode = Mode::parse(text);
    if mode.is_none() {
        let known = [Mode::Strict.as_str(), Mode::Permissive.as_str()];
        scope.error(
            &FieldPath::of("metadata.labels").field(MODE_LABEL),
            format!("{text:?} is no mode"),
            did_you_mean(text, known, "use strict or permissive"),
        );
    }
    mode
}
