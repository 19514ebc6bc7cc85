//! Finds the Service for a host name, for requests that name one (the forward proxy).
//!
//! Host names follow cluster DNS: `service` within the caller's own namespace, and `service.namespace`,
//! `service.namespace.svc`, `service.namespace.svc.cluster.local` everywhere.

use std::collections::HashMap;
use std::sync::Arc;

use foldhash::fast::RandomState;
use heddle_model::{Namespace, ServiceName};

use crate::heap::is_loose;

const SUFFIXES: [&str; 2] = [".svc.cluster.local", ".svc"];

/// Service names, by the host names that callers use.
#[derive(Debug, Clone, Default)]
pub(crate) struct Hosts {
    /// Keyed by `namespace/service`, so that a lookup of any form is one hash of one buffer.
    known: HashMap<Arc<str>, ServiceName, RandomState>,
}

impl Hosts {
    pub(super) fn add(&mut self, service: &ServiceName) {
        self.known
            .insert(service.to_string().into(), service.clone());
    }

    pub(super) fn remove(&mut self, service: &ServiceName) {
        self.known.remove(&*service.to_string());
    }

    /// Gives back room for names that are gone.
    pub(super) fn fit(&mut self) {
        if is_loose(self.known.capacity(), self.known.len()) {
            self.known.shrink_to_fit();
        }
    }

    #[cfg(test)]
    pub(super) fn room(&self) -> usize {
        self.known.capacity()
    }

    /// Whether there is such a Service.
    pub(super) fn has(&self, service: &ServiceName) -> bool {
        let found = self.known(service.namespace.as_str(), service.name.as_str());
        found.is_some()
    }

    /// The Service that `host` (canonical: lower case, no port) means to a caller of `namespace`.
    pub(crate) fn find(&self, namespace: &Namespace, host: &str) -> Option<&ServiceName> {
        let (namespace, service) = meant(namespace, host);
        self.known(namespace, service)
    }

    fn known(&self, namespace: &str, service: &str) -> Option<&ServiceName> {
        let mut key = [0u8; 160];
        let length = namespace.len() + 1 + service.len();
        let key = key.get_mut(..length)?;
        key[..namespace.len()].copy_from_slice(namespace.as_bytes());
        key[namespace.len()] = b'/';
        key[namespace.len() + 1..].copy_from_slice(service.as_bytes());
        self.known.get(std::str::from_utf8(key).ok()?)
    }
}

/// The namespace and the name that `host` (canonical: lower case, no port) means to a caller of `namespace`.
fn meant<'h>(namespace: &'h Namespace, host: &'h str) -> (&'h str, &'h str) {
    let host = SUFFIXES
        .iter()
        .find_map(|suffix| host.strip_suffix(suffix))
        .unwrap_or(host);
    // A Service's name is a DNS label, so the first dot ends it.
    match host.split_once('.') {
        Some((service, namespace)) => (namespace, service),
        None => (namespace.as_str(), host),
    }
}

/// The Service that `host` (canonical: lower case, no port) means to a caller of `namespace`, whether there is one or not;
/// `None` if no Service can have that name.
pub(crate) fn service_of(namespace: &Namespace, host: &str) -> Option<ServiceName> {
    let (namespace, service) = meant(namespace, host);
    // DNS labels of a Service and its namespace: most host names of other kinds have more of them.
    let fits = |label: &str| label.len() <= 63 && !label.contains('.');
    let name = ServiceName::new(namespace, service).ok()?;
    (fits(namespace) && fits(service)).then_some(name)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn hosts() -> Hosts {
        let names = [
            ("shop", "reviews"),
            ("shop", "ratings"),
            ("other", "reviews"),
        ]
        .map(|(namespace, name)| ServiceName::new(namespace, name).unwrap());
        let mut hosts = Hosts::default();
        names.iter().for_each(|name| hosts.add(name));
        hosts
    }

    fn find(namespace: &str, host: &str) -> Option<String> {
        hosts()
            .find(&Namespace::parse(namespace).unwrap(), host)
            .map(ToString::to_string)
    }

    #[test]
    fn a_short_name_is_looked_up_in_the_callers_namespace() {
        assert_eq!(find("shop", "reviews").as_deref(), Some("shop/reviews"));
        assert_eq!(find("other", "reviews").as_deref(), Some("other/reviews"));
        assert_eq!(find("other", "ratings"), None);
    }

    #[test]
    fn qualified_names_mean_the_same_everywhere() {
        for host in [
            "reviews.shop",
            "reviews.shop.svc",
            "reviews.shop.svc.cluster.local",
        ] {
            assert_eq!(
                find("other", host).as_deref(),
                Some("shop/reviews"),
                "{host}"
            );
        }
    }

    #[test]
    fn what_is_no_service_is_unknown() {
        let long = format!("{}.shop", "a".repeat(300));
        for host in [
            "",
            ".",
            "shop",
            "example.com",
            "reviews.shop.svc.example",
            "a/b",
            &long,
        ] {
            assert_eq!(find("shop", host), None, "{host}");
        }
    }
}
