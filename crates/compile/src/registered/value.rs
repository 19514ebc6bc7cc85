//! What may stand under a key.

use std::net::IpAddr;

use heddle_model::report::{Origin, Problem};

use super::{Entry, MAX_VALUE_BYTES, ProviderKey, admit, warning};
use crate::manifest::{self, Keyed, Object};
use crate::{Options, compile};

#[cfg(test)]
mod tests;

/// Reads the object of a value.
///
/// # Errors
/// What is wrong with it first.
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

/// Judges a value for itself, as if nothing else were there.
///
/// # Errors
/// What is wrong with it first: with the object, or that it would be refused in a folder of its own.
pub fn judge(origin: &Origin, key: &ProviderKey, value: &[u8]) -> Result<(), Box<Problem>> {
    let object = read(origin, key, value)?;
    match compile::flaw_of_workload(object, &Options::default()) {
        Some(problem) => Err(Box::new(told(origin, problem))),
        None => Ok(()),
    }
}

/// Where the provider of a value listens; nowhere, when it cannot be read.
pub fn sockets(key: &ProviderKey, value: &[u8]) -> Vec<(IpAddr, u16)> {
    let object = read(&Origin::etcd(key.to_string()), key, value);
    object.map_or_else(|_| Vec::new(), |object| admit::sockets(&object).collect())
}

impl Entry {
    /// The object that it was judged by.
    pub(crate) fn object(&self) -> Result<Object, Box<Problem>> {
        read(&self.origin, &self.key, &self.value)
    }
}

/// A problem with an object of the registry, wherever it was found: it has no lines, and stops nothing.
pub(crate) fn told(origin: &Origin, problem: Problem) -> Problem {
    let Problem {
        field,
        reason,
        remedy,
        ..
    } = problem;
    warning(origin, &field, reason, &remedy)
}
