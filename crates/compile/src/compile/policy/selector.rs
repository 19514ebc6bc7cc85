//! Label selectors, as Kubernetes evaluates them (apimachinery's `LabelSelector`).

use std::collections::BTreeMap;

use heddle_model::Workload;

use super::PolicyContext;
use crate::compile::{Scope, did_you_mean};
use crate::manifest::node::FieldPath;
use crate::manifest::policy::{LabelExpression, LabelSelector};

/// Limits of expressions in one selector, and of values in one expression.
const MAX_EXPRESSIONS: usize = 64;
const MAX_VALUES: usize = 256;

const OPERATORS: [&str; 4] = ["In", "NotIn", "Exists", "DoesNotExist"];

/// Whether a selector can be evaluated; its faults are reported.
pub(super) fn check(selector: &LabelSelector, at: &FieldPath, scope: &mut Scope<'_>) -> bool {
    let at = at.field("matchExpressions");
    let written = scope.at_most(&at, &selector.match_expressions, MAX_EXPRESSIONS);
    let mut good = written.len() == selector.match_expressions.len();
    for (position, expression) in written.iter().enumerate() {
        let at = at.index(position);
        let values = scope.at_most(&at.field("values"), &expression.values, MAX_VALUES);
        good &= values.len() == expression.values.len();
        let is_empty = values.is_empty();
        match expression.operator.as_str() {
            "In" | "NotIn" if is_empty => {
                scope.error(&at.field("values"), "there is no value", "add one");
                good = false;
            }
            "Exists" | "DoesNotExist" if !is_empty => {
                let reason = format!("{} takes no values", expression.operator);
                scope.error(
                    &at.field("values"),
                    reason,
                    "remove them, or use In or NotIn",
                );
                good = false;
            }
            known if OPERATORS.contains(&known) => {}
            other => {
                let otherwise = format!("use one of {}", OPERATORS.join(", "));
                let remedy = did_you_mean(other, OPERATORS, &otherwise);
                scope.error(
                    &at.field("operator"),
                    format!("{other:?} is no operator"),
                    remedy,
                );
                good = false;
            }
        }
    }
    good
}

/// The workloads of the policy's namespace, which are adjacent in the list sorted by name. `None` if the budget of
/// `MAX_LOOKED_AT` does not suffice, which is reported.
pub(super) fn candidates<'w>(
    context: &PolicyContext<'w>,
    at: &FieldPath,
    looks_left: &mut usize,
    scope: &mut Scope<'_>,
) -> Option<&'w [Workload]> {
    let (all, namespace) = (context.workloads, &context.object.namespace);
    let start = all.partition_point(|workload| workload.name.namespace < *namespace);
    let rest = all.get(start..).unwrap_or_default();
    let end = rest.partition_point(|workload| workload.name.namespace == *namespace);
    let Some(left) = looks_left.checked_sub(end) else {
        let reason = "there are too many policies in namespaces with many workloads";
        scope.error(at, reason, "put rules into fewer policies");
        return None;
    };
    *looks_left = left;
    rest.get(..end)
}

/// Whether a checked selector selects these labels. An empty one selects everything.
pub(super) fn selects(selector: &LabelSelector, labels: &BTreeMap<String, String>) -> bool {
    let has = |(key, value): (&String, &String)| labels.get(key) == Some(value);
    selector.match_labels.iter().all(has)
        && selector
            .match_expressions
            .iter()
            .all(|expression| meets(expression, labels.get(&expression.key)))
}

fn meets(expression: &LabelExpression, value: Option<&String>) -> bool {
    let is_listed = value.is_some_and(|value| expression.values.contains(value));
    match expression.operator.as_str() {
        "In" => is_listed,
        "NotIn" => !is_listed,
        "Exists" => value.is_some(),
        _ => value.is_none(),
    }
}
