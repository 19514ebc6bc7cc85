//! The etcd keys of providers.
//!
//! ```text
//!   /heddle/v1/ providers/ shop / reviews / 10-0-0-5-9080
//!   prefix                 namespace  Service    provider
//! ```

use std::fmt;

use heddle_model::{Name, Namespace, ServiceName, WorkloadName, is_dns_label, registry_prefix};

#[cfg(test)]
mod tests;

/// The part after the prefix. Other names beside it are reserved.
const PROVIDERS: &str = "providers/";

/// The key space of a mesh in etcd.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Layout {
    /// Ends with a slash.
    prefix: String,
}

/// Why a text is not a prefix, or a key is not a provider's.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct InvalidKey(String);

impl fmt::Display for InvalidKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for InvalidKey {}

impl Default for Layout {
    fn default() -> Self {
        Layout {
            prefix: "/heddle/v1/".to_owned(),
        }
    }
}

impl Layout {
    /// Reads a prefix such as `/heddle/v1/`; the final slash is optional.
    ///
    /// # Errors
    /// As [`registry_prefix`].
    pub fn parse(prefix: &str) -> Result<Self, InvalidKey> {
        let prefix = registry_prefix(prefix).map_err(InvalidKey)?;
        Ok(Layout { prefix })
    }

    /// The prefix, with a slash at its end.
    pub fn prefix(&self) -> &str {
        &self.prefix
    }

    /// The common prefix of all providers' keys.
    pub fn providers(&self) -> String {
        format!("{}{PROVIDERS}", self.prefix)
    }

    /// The etcd key of a provider.
    pub fn key(&self, provider: &ProviderKey) -> String {
        format!("{}{provider}", self.providers())
    }

    /// Parses a provider's etcd key.
    ///
    /// # Errors
    /// [`InvalidKey`] shows the expected form.
    pub fn provider(&self, key: &[u8]) -> Result<ProviderKey, InvalidKey> {
        let text = std::str::from_utf8(key).ok();
        let rest = text.and_then(|key| key.strip_prefix(&self.providers()).map(str::to_owned));
        let rest = rest.unwrap_or_default();
        match rest.split('/').collect::<Vec<_>>()[..] {
            [namespace, service, provider] => ProviderKey::new(namespace, service, provider),
            _ => Err(InvalidKey(format!(
                "this is no provider's key: it is {}NAMESPACE/SERVICE/PROVIDER",
                self.providers()
            ))),
        }
    }
}

/// A provider of a Service. Shown as `namespace/service/provider`.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct ProviderKey {
    /// The namespace of the Service and of the workload.
    pub namespace: Namespace,
    /// The Service's name, a DNS label.
    pub service: Name,
    /// The provider's name, unique in its Service, a DNS label.
    pub provider: Name,
}

impl ProviderKey {
    /// Checks and joins the three parts.
    ///
    /// # Errors
    /// [`InvalidKey`] for a part that is not a DNS label.
    pub fn new(namespace: &str, service: &str, provider: &str) -> Result<Self, InvalidKey> {
        let label = |what: &str, text: &str| match is_dns_label(text) {
            true => Name::parse(text).map_err(|error| InvalidKey(error.to_string())),
            false => Err(InvalidKey(format!(
                "{text:?} is no {what}: use a-z, 0-9 and '-', at most 63 characters"
            ))),
        };
        Ok(ProviderKey {
            namespace: Namespace::parse(namespace)
                .map_err(|error| InvalidKey(error.to_string()))?,
            service: label("Service's name", service)?,
            provider: label("provider's name", provider)?,
        })
    }

    /// The name of its workload. The dot separates the two labels, neither of which has one, so each key gets another
    /// name.
    pub fn workload(&self) -> String {
        format!("{}.{}", self.service, self.provider)
    }

    /// The workload's name with its namespace.
    pub(crate) fn workload_name(&self) -> Option<WorkloadName> {
        WorkloadName::new(self.namespace.as_str(), &self.workload()).ok()
    }

    /// The Service for which the provider registered.
    pub(crate) fn service_name(&self) -> ServiceName {
        ServiceName {
            namespace: self.namespace.clone(),
            name: self.service.clone(),
        }
    }
}

impl fmt::Display for ProviderKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let ProviderKey {
            namespace,
            service,
            provider,
        } = self;
        write!(f, "{namespace}/{service}/{provider}")
    }
}
