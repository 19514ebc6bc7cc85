//! The file of a lab (docs/lab.md), which may be beside or above its manifests.

use heddle_model::report::{Origin, Problem, Severity};

use super::node::Node;

/// The warning that a lab's document is ignored; `None` for any other document.
pub(super) fn left_aside(file: &Origin, tree: &Node) -> Option<Problem> {
    let has = |key| tree.get(key).is_some();
    let is_object = has("apiVersion") || has("kind");
    if is_object || !["name", "nodes", "manifests"].into_iter().all(has) {
        return None;
    }
    Some(Problem {
        severity: Severity::Warning,
        origin: file.at(tree.line),
        object: None,
        field: String::new(),
        reason: "this is the file of a lab, for heddle-lab up: nothing in it is read here"
            .to_owned(),
        remedy: "heddle-lab validate FILE checks it with its manifests".to_owned(),
        cause: None,
    })
}
