//! Names of objects in a mesh, one type for each role.
//!
//! All of them hold an `Arc<str>`: a clone is a reference count, so that a name can label a
//! connection, a metric series and a log line without copying text.

use std::fmt;
use std::sync::Arc;

use crate::text_form::text_form;

#[cfg(test)]
mod tests;

/// Longest DNS label (RFC 1035 section 2.3.4).
const MAX_LABEL: usize = 63;
/// Longest DNS subdomain that Kubernetes accepts as an object's name.
const MAX_SUBDOMAIN: usize = 253;

/// Whether `text` is a DNS-1123 label: 1 to 63 of `a-z`, `0-9` and `-`, with a letter or digit at
/// both ends.
pub fn is_dns_label(text: &str) -> bool {
    let bytes = text.as_bytes();
    let alphanumeric = |b: &u8| b.is_ascii_lowercase() || b.is_ascii_digit();
    bytes.len() <= MAX_LABEL
        && bytes.first().is_some_and(alphanumeric)
        && bytes.last().is_some_and(alphanumeric)
        && bytes.iter().all(|b| alphanumeric(b) || *b == b'-')
}

/// Whether `text` is a DNS-1123 subdomain: labels joined by dots, at most 253 bytes.
pub fn is_dns_subdomain(text: &str) -> bool {
    text.len() <= MAX_SUBDOMAIN && text.split('.').all(is_dns_label)
}

/// A text that cannot name an object.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct InvalidName {
    text: String,
    expected: &'static str,
}

impl InvalidName {
    pub(crate) fn new(text: &str, expected: &'static str) -> Self {
        InvalidName {
            text: text.to_owned(),
            expected,
        }
    }
}

impl fmt::Display for InvalidName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:?} is no {}", self.text, self.expected)
    }
}

impl std::error::Error for InvalidName {}

/// A namespace: a DNS-1123 label.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Namespace(Arc<str>);

/// The name of an object within its namespace: a DNS-1123 subdomain.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Name(Arc<str>);

impl Namespace {
    /// Parses a DNS-1123 label.
    ///
    /// # Errors
    /// [`InvalidName`] for anything else.
    pub fn parse(text: &str) -> Result<Self, InvalidName> {
        if is_dns_label(text) {
            Ok(Self(text.into()))
        } else {
            Err(InvalidName::new(
                text,
                "DNS label (a-z, 0-9 and '-', at most 63 characters)",
            ))
        }
    }

    /// The name as text.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl Name {
    /// Parses a DNS-1123 subdomain.
    ///
    /// # Errors
    /// [`InvalidName`] for anything else.
    pub fn parse(text: &str) -> Result<Self, InvalidName> {
        if is_dns_subdomain(text) {
            Ok(Self(text.into()))
        } else {
            Err(InvalidName::new(
                text,
                "DNS name (a-z, 0-9, '-' and '.', at most 253 characters)",
            ))
        }
    }

    /// The name as text.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

/// A name made of a namespace and a name, shown as `namespace/name`.
macro_rules! namespaced {
    ($($(#[$doc:meta])* $name:ident;)*) => {$(
        $(#[$doc])*
        #[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
        pub struct $name {
            /// The namespace of the object.
            pub namespace: Namespace,
            /// The object's name in that namespace.
            pub name: Name,
        }

        impl $name {
            /// Parses a namespace and a name.
            ///
            /// # Errors
            /// [`InvalidName`] when one of the two is invalid.
            pub fn new(namespace: &str, name: &str) -> Result<Self, InvalidName> {
                Ok(Self { namespace: Namespace::parse(namespace)?, name: Name::parse(name)? })
            }

            /// Parses `namespace/name`.
            ///
            /// # Errors
            /// [`InvalidName`] when the slash is missing or a part is invalid.
            pub fn parse(text: &str) -> Result<Self, InvalidName> {
                let (namespace, name) = text.split_once('/').ok_or_else(|| {
                    InvalidName::new(text, "name of the form namespace/name")
                })?;
                Self::new(namespace, name)
            }
        }

        text_form! {
            $name => |this, f| write!(f, "{}/{}", this.namespace.0, this.name.0);
        }
    )*};
}

text_form! {
    Namespace => |this, f| f.write_str(&this.0);
    Name => |this, f| f.write_str(&this.0);
}

namespaced! {
    ServiceName;
    /// The name of a workload: of a LocalWorkload, later of a pod.
    WorkloadName;
    /// The name of a ServiceAccount, from which a workload's identity is made.
    ServiceAccountName;
}
