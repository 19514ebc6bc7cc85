//! The values that a provider's key may have.

use std::net::IpAddr;

use heddle_model::report::{Origin, Problem};

use super::{Entry, MAX_VALUE_BYTES, ProviderKey, admit, warning};
use crate::manifest::{self, Keyed, Object};
use crate::{Options, compile};

#[cfg(test)]
mod tests;

/// Parses the object of a value.
///
/// # Errors
/// The first fault found.
pub(crate) fn read(
    origin: &Origin,
    key: &ProviderKey,
    value: &[u8],
) -> Result<Object, Box<Problem>> {
    if value.len() > MAX_VALUE_BYTES {
        let reason = format!("the value has more than {} KiB", MAX_VALUE_BYTES >> 10);
        let remedy = "write what a provider needs";
        return Err(Box::new(warning(origin, "", reason, remedy)));
    }
    let keyed = Keyed {
        namespace: key.namespace.as_str(),
        service: key.service.as_str(),
        name: &key.workload(),
    };
    manifest::read_registered(origin, value, &keyed)
}

/// Validates a value alone, as if it were the only object.
///
/// # Errors
/// The first fault found: the object is malformed, or would be refused in a folder of its own.
pub fn judge(origin: &Origin, key: &ProviderKey, value: &[u8]) -> Result<(), Box<Problem>> {
    let object = read(origin, key, value)?;
    match compile::flaw_of_workload(&object, &Options::default()) {
        Some(problem) => Err(Box::new(told(origin, problem))),
        None => Ok(()),
    }
}

/// The addresses and ports at which a provider listens; empty if the value is malformed.
pub fn sockets(key: &ProviderKey, value: &[u8]) -> Vec<(IpAddr, u16)> {
    let object = read(&Origin::etcd(key.to_string()), key, value);
    object.map_or_else(|_| Vec::new(), |object| admit::sockets(&object).collect())
}

impl Entry {
    /// The object, parsed again.
    pub(crate) fn object(&self) -> Result<Object, Box<Problem>> {
        read(&self.origin, &self.key, &self.value)
    }
}

/// A problem of a registry object, found at any stage: it gets the registry's origin instead of a line, and becomes a
/// warning.
pub(crate) fn told(origin: &Origin, problem: Problem) -> Problem {
    let Problem {
        field,
        reason,
        remedy,
        ..
    } = problem;
    warning(origin, &field, reason, &remedy)
}
