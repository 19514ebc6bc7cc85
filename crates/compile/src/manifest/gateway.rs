//! Kinds of the Gateway API, in the shape of gateway.networking.k8s.io/v1.

use serde::Deserialize;
use serde::de::IgnoredAny;

/// gateway.networking.k8s.io HTTPRoute, v1 and v1beta1 (which have the same shape).
#[derive(Debug, Deserialize)]
pub(crate) struct HttpRoute {
    pub(crate) spec: HttpRouteSpec,
}

#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct HttpRouteSpec {
    #[serde(default)]
    pub(crate) parent_refs: Vec<ParentReference>,
    #[serde(default)]
    pub(crate) hostnames: Vec<String>,
    pub(crate) rules: Option<Vec<HttpRouteRule>>,
}

#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct ParentReference {
    pub(crate) group: Option<String>,
    pub(crate) kind: Option<String>,
    pub(crate) namespace: Option<String>,
    pub(crate) name: String,
    pub(crate) section_name: Option<String>,
    pub(crate) port: Option<i64>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(crate) struct HttpRouteRule {
    pub(crate) name: Option<String>,
    pub(crate) matches: Vec<HttpRouteMatch>,
    pub(crate) filters: Vec<HttpRouteFilter>,
    pub(crate) backend_refs: Vec<HttpBackendRef>,
    pub(crate) timeouts: Option<HttpRouteTimeouts>,
    pub(crate) retry: Option<IgnoredAny>,
    pub(crate) session_persistence: Option<IgnoredAny>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(crate) struct HttpRouteMatch {
    pub(crate) path: Option<HttpPathMatch>,
    pub(crate) headers: Vec<ValueMatch>,
    pub(crate) query_params: Vec<ValueMatch>,
    pub(crate) method: Option<String>,
}

#[derive(Debug, Deserialize)]
pub(crate) struct HttpPathMatch {
    #[serde(rename = "type")]
    pub(crate) kind: Option<String>,
    pub(crate) value: Option<String>,
}

#[derive(Debug, Deserialize)]
pub(crate) struct ValueMatch {
    #[serde(rename = "type")]
    pub(crate) kind: Option<String>,
    pub(crate) name: String,
    pub(crate) value: String,
}

/// A filter: `type` names the one other field that is present.
#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct HttpRouteFilter {
    #[serde(rename = "type")]
    pub(crate) kind: String,
    pub(crate) request_header_modifier: Option<HttpHeaderFilter>,
    pub(crate) response_header_modifier: Option<HttpHeaderFilter>,
    pub(crate) request_redirect: Option<HttpRequestRedirect>,
    pub(crate) url_rewrite: Option<HttpUrlRewrite>,
    pub(crate) request_mirror: Option<IgnoredAny>,
    pub(crate) cors: Option<IgnoredAny>,
    pub(crate) external_auth: Option<IgnoredAny>,
    pub(crate) extension_ref: Option<IgnoredAny>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub(crate) struct HttpHeaderFilter {
    pub(crate) set: Vec<HttpHeader>,
    pub(crate) add: Vec<HttpHeader>,
    pub(crate) remove: Vec<String>,
}

#[derive(Debug, Deserialize)]
pub(crate) struct HttpHeader {
    pub(crate) name: String,
    pub(crate) value: String,
}

#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(crate) struct HttpRequestRedirect {
    pub(crate) scheme: Option<String>,
    pub(crate) hostname: Option<String>,
    pub(crate) path: Option<HttpPathModifier>,
    pub(crate) port: Option<i64>,
    pub(crate) status_code: Option<i64>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub(crate) struct HttpUrlRewrite {
    pub(crate) hostname: Option<String>,
    pub(crate) path: Option<HttpPathModifier>,
}

#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct HttpPathModifier {
    #[serde(rename = "type")]
    pub(crate) kind: String,
    pub(crate) replace_full_path: Option<String>,
    pub(crate) replace_prefix_match: Option<String>,
}

#[derive(Debug, Deserialize)]
pub(crate) struct HttpBackendRef {
    pub(crate) group: Option<String>,
    pub(crate) kind: Option<String>,
    pub(crate) namespace: Option<String>,
    pub(crate) name: String,
    pub(crate) port: Option<i64>,
    pub(crate) weight: Option<i64>,
    #[serde(default)]
    pub(crate) filters: Vec<HttpRouteFilter>,
}

#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct HttpRouteTimeouts {
    pub(crate) request: Option<String>,
    pub(crate) backend_request: Option<String>,
}

/// gateway.networking.k8s.io ReferenceGrant, v1 and v1beta1.
#[derive(Debug, Deserialize)]
pub(crate) struct ReferenceGrant {
    pub(crate) spec: ReferenceGrantSpec,
}

#[derive(Debug, Deserialize)]
pub(crate) struct ReferenceGrantSpec {
    pub(crate) from: Vec<ReferenceGrantFrom>,
    pub(crate) to: Vec<ReferenceGrantTo>,
}

#[derive(Debug, Deserialize)]
pub(crate) struct ReferenceGrantFrom {
    pub(crate) group: String,
    pub(crate) kind: String,
    pub(crate) namespace: String,
}

#[derive(Debug, Deserialize)]
pub(crate) struct ReferenceGrantTo {
    pub(crate) group: String,
    pub(crate) kind: String,
    pub(crate) name: Option<String>,
}
