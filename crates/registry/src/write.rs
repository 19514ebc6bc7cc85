//! A provider as it is registered.

use std::collections::BTreeMap;
use std::net::{IpAddr, SocketAddr};

use heddle_model::GROUP;
use serde_json::{Map, Value, json};

use heddle_compile::registered::{MAX_REQUESTS_ANNOTATION, ProviderKey, judge};
use heddle_model::report::{Origin, Problem};

#[cfg(test)]
mod tests;

/// One process that provides a Service.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Provider {
    /// The Service, and the provider's name in it.
    pub key: ProviderKey,
    /// The address and port at which the provider is called.
    pub address: SocketAddr,
    /// The name by which a Service's `targetPort` may select the port.
    pub port_name: Option<String>,
    /// Weight beside the other providers; 1 if absent.
    pub weight: Option<u32>,
    /// Limit of concurrent requests to it; unlimited if absent.
    pub max_requests: Option<u32>,
    /// The service account of its identity; `default` of its namespace if absent.
    pub service_account: Option<String>,
    /// The node that runs it, in a mesh of several.
    pub node: Option<String>,
    /// The labels that selectors match.
    pub labels: BTreeMap<String, String>,
}

impl Provider {
    /// The value for its key: a LocalWorkload in JSON, on one line.
    pub fn value(&self) -> String {
        let mut port = Map::new();
        if let Some(name) = &self.port_name {
            port.insert("name".to_owned(), json!(name));
        }
        port.insert("port".to_owned(), json!(self.address.port()));
        let mut spec = Map::new();
        spec.insert("address".to_owned(), json!(self.address.ip()));
        spec.insert("ports".to_owned(), json!([port]));
        let more = [
            ("weight", self.weight.map(|weight| json!(weight))),
            (
                "serviceAccountName",
                self.service_account.as_ref().map(|name| json!(name)),
            ),
            ("nodeName", self.node.as_ref().map(|name| json!(name))),
        ];
        for (field, value) in more {
            if let Some(value) = value {
                spec.insert(field.to_owned(), value);
            }
        }
        let mut metadata = Map::new();
        metadata.insert("labels".to_owned(), json!(self.labels));
        if let Some(most) = self.max_requests {
            let annotations = json!({ MAX_REQUESTS_ANNOTATION: most.to_string() });
            metadata.insert("annotations".to_owned(), annotations);
        }
        let object = json!({
            "apiVersion": format!("{GROUP}/v1alpha1"),
            "kind": "LocalWorkload",
            "metadata": metadata,
            "spec": Value::Object(spec),
        });
        object.to_string()
    }

    /// Validates it as a node that follows the registry will.
    ///
    /// # Errors
    /// The first fault found.
    pub fn check(&self) -> Result<(), Box<Problem>> {
        judge(
            &Origin::etcd(self.key.to_string()),
            &self.key,
            self.value().as_bytes(),
        )
    }

    /// The default name of a provider, made from its address and port.
    pub fn name_of(address: SocketAddr) -> String {
        let port = address.port();
        match address.ip() {
            IpAddr::V4(v4) => {
                let [a, b, c, d] = v4.octets();
                format!("{a}-{b}-{c}-{d}-{port}")
            }
            // A label must not begin with a dash, hence the prefix; every segment is written out, so one address has
            // one text.
            IpAddr::V6(v6) => {
                let segments = v6.segments().map(|segment| format!("{segment:x}"));
                format!("v6-{}-{port}", segments.join("-"))
            }
        }
    }
}
