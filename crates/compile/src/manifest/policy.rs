//! `AuthorizationPolicy`, in the shape of the Gateway API's GEP-3779.
//!
//! Extended by the action `DENY`, `httpAttributes` and `dryRun`.

use std::collections::BTreeMap;

use serde::Deserialize;

use super::gateway::{HttpPathMatch, ValueMatch};

/// heddle.dev/v1alpha1 AuthorizationPolicy.
#[derive(Debug, Deserialize)]
pub(crate) struct AuthorizationPolicy {
    pub(crate) spec: AuthorizationPolicySpec,
}

#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct AuthorizationPolicySpec {
    pub(crate) target_refs: Vec<PolicyTarget>,
    pub(crate) action: String,
    pub(crate) enforcement_level: Option<String>,
    #[serde(default)]
    pub(crate) rules: Vec<AuthorizationRule>,
    #[serde(default)]
    pub(crate) dry_run: bool,
}

#[derive(Debug, Deserialize)]
pub(crate) struct PolicyTarget {
    pub(crate) group: Option<String>,
    pub(crate) kind: String,
    pub(crate) name: Option<String>,
    pub(crate) selector: Option<LabelSelector>,
}

/// meta/v1 LabelSelector.
#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(crate) struct LabelSelector {
    pub(crate) match_labels: BTreeMap<String, String>,
    pub(crate) match_expressions: Vec<LabelExpression>,
}

impl LabelSelector {
    /// Whether it can be evaluated as it is written.
    pub(crate) fn is_understood(&self) -> bool {
        let is_understood = |expression: &LabelExpression| {
            let operator = expression.operator.as_str();
            match expression.values.is_empty() {
                false => matches!(operator, "In" | "NotIn"),
                true => matches!(operator, "Exists" | "DoesNotExist"),
            }
        };
        self.match_expressions.iter().all(is_understood)
    }
}

#[derive(Debug, Deserialize)]
pub(crate) struct LabelExpression {
    pub(crate) key: String,
    pub(crate) operator: String,
    #[serde(default)]
    pub(crate) values: Vec<String>,
}

/// An absent list is no condition; an empty list is reported as a fault.
#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(crate) struct AuthorizationRule {
    pub(crate) sources: Option<Vec<AuthorizationSource>>,
    pub(crate) network_attributes: Option<NetworkAttributes>,
    pub(crate) http_attributes: Option<HttpAttributes>,
}

/// A source: `type` names the one other field that is present.
#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct AuthorizationSource {
    #[serde(rename = "type")]
    pub(crate) kind: String,
    pub(crate) spiffe: Option<String>,
    pub(crate) service_account: Option<SourceAccount>,
}

#[derive(Debug, Deserialize)]
pub(crate) struct SourceAccount {
    pub(crate) namespace: Option<String>,
    pub(crate) name: String,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub(crate) struct NetworkAttributes {
    pub(crate) ports: Option<Vec<i64>>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub(crate) struct HttpAttributes {
    pub(crate) methods: Option<Vec<String>>,
    pub(crate) paths: Option<Vec<HttpPathMatch>>,
    pub(crate) headers: Option<Vec<ValueMatch>>,
}
