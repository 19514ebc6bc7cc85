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
    /// Which provider of which Service.
    pub key: ProviderKey,
    /// Where it is called.
    pub address: SocketAddr,
    /// What a Service's `targetPort` may call its port.
    pub port_name: Option<String>,
    /// Its share beside the other providers; 1 if absent.
    pub weight: Option<u32>,
    /// How many requests it takes at a time.
    pub max_requests: Option<u32>,
    /// Whose identity it has; `default` of its namespace if absent.
    pub service_account: Option<String>,
    /// The node that it is on, where there are several.
    pub node: Option<String>,
    /// What selectors match.
    pub labels: BTreeMap<String, String>,
}

impl Provider {
    /// What stands under its key: a LocalWorkload in JSON, on one line.
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

    /// Judges it as a node that follows the registry will.
    ///
    /// # Errors
    /// What is wrong with it first.
    pub fn check(&self) -> Result<(), Box<Problem>> {
        judge(
            &Origin::etcd(self.key.to_string()),
            &self.key,
            self.value().as_bytes(),
        )
    }

    /// What tells a provider from others if nothing else is said: where it is called.
    pub fn name_of(address: SocketAddr) -> String {
        let port = address.port();
        match address.ip() {
            IpAddr::V4(v4) => {
                let [a, b, c, d] = v4.octets();
                format!("{a}-{b}-{c}-{d}-{port}")
            }
            // A label neither begins with a dash nor has two addresses in one text.
            IpAddr::V6(v6) => {
                let segments = v6.segments().map(|segment| format!("{segment:x}"));
                format!("v6-{}-{port}", segments.join("-"))
            }
        }
    }
}
