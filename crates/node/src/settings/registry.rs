//! The registry in which providers register themselves, as written in the file.

use std::path::PathBuf;

use serde::{Deserialize, Serialize};

use heddle_model::{RegistryEndpointsError, check_registry_endpoints, registry_prefix};

use super::contradiction::Contradiction;

/// Default prefix of all keys.
const PREFIX: &str = "/heddle/v1/";

/// A registry in etcd; none is followed without an endpoint.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize, Serialize)]
#[serde(deny_unknown_fields, default)]
pub struct RegistrySettings {
    /// Members of one etcd, such as `[http://10.0.0.1:2379]`. Empty: no registry is followed.
    ///
    /// Values: at most 16, all http or all https.
    pub etcd: Vec<String>,
    /// The beginning of all keys.
    pub prefix: String,
    /// A file with the certificate that signed those of etcd, in PEM: needed for https.
    pub ca: Option<PathBuf>,
    /// A file with our own certificate, in PEM, where etcd asks for one.
    pub certificate: Option<PathBuf>,
    /// A file with the key of our certificate, in PEM.
    pub key: Option<PathBuf>,
    /// Our user in etcd, where etcd asks for one.
    pub user: Option<String>,
    /// The file with our password.
    pub password_file: Option<PathBuf>,
}

impl Default for RegistrySettings {
    fn default() -> Self {
        RegistrySettings {
            etcd: Vec::new(),
            prefix: PREFIX.to_owned(),
            ca: None,
            certificate: None,
            key: None,
            user: None,
            password_file: None,
        }
    }
}

impl RegistrySettings {
    /// Looks for values that are valid on their own, but contradict each other.
    pub(super) fn contradiction(&self) -> Option<Contradiction> {
        self.wrong_prefix()
            .or_else(|| self.half_of_a_pair())
            .or_else(|| self.no_endpoints())
            .or_else(|| self.wrong_endpoints())
    }

    fn wrong_prefix(&self) -> Option<Contradiction> {
        let reason = registry_prefix(&self.prefix).err()?;
        Some(Contradiction {
            fields: vec!["registry.prefix"],
            reason,
            remedy: "see docs/settings.md for what this field takes".to_owned(),
        })
    }

    /// A certificate without its key, a user without a password, or the other way round.
    fn half_of_a_pair(&self) -> Option<Contradiction> {
        let own = (self.certificate.is_some(), self.key.is_some());
        let login = (self.user.is_some(), self.password_file.is_some());
        let (field, reason, remedy) = match (own, login) {
            ((true, false), _) => (
                "registry.certificate",
                "a certificate needs its key",
                "name it with --etcd-key or registry.key",
            ),
            ((false, true), _) => (
                "registry.key",
                "a key needs its certificate",
                "name it with --etcd-cert or registry.certificate",
            ),
            (_, (true, false)) => (
                "registry.user",
                "a user needs a file with the password",
                "name it with --etcd-password-file or registry.password_file",
            ),
            (_, (false, true)) => (
                "registry.password_file",
                "a password needs a user",
                "name it with --etcd-user or registry.user",
            ),
            _ => return None,
        };
        Some(Contradiction {
            fields: vec![field],
            reason: reason.to_owned(),
            remedy: remedy.to_owned(),
        })
    }

    /// Fields that have no use without an endpoint.
    fn no_endpoints(&self) -> Option<Contradiction> {
        let is_default = self.prefix.trim_end_matches('/') == PREFIX.trim_end_matches('/');
        let more = [
            ("registry.user", self.user.is_some()),
            ("registry.password_file", self.password_file.is_some()),
            ("registry.prefix", !is_default),
        ];
        let fields = [self.certificates(), set(&more)].concat();
        let is_useless = self.etcd.is_empty() && !fields.is_empty();
        is_useless.then(|| Contradiction {
            fields,
            reason: "there is no registry to use it with".to_owned(),
            remedy: "name one with --etcd or registry.etcd".to_owned(),
        })
    }

    fn wrong_endpoints(&self) -> Option<Contradiction> {
        if self.etcd.is_empty() {
            return None;
        }
        let (mut fields, has_ca) = (self.certificates(), self.ca.is_some());
        let wrong = check_registry_endpoints(&self.etcd, !fields.is_empty(), has_ca).err()?;
        if wrong != RegistryEndpointsError::NoUseForCertificates {
            fields.clear();
        }
        fields.push("registry.etcd");
        Some(Contradiction {
            fields,
            reason: wrong.to_string(),
            remedy: "see docs/registry.md".to_owned(),
        })
    }

    /// The fields with certificates that are set.
    fn certificates(&self) -> Vec<&'static str> {
        set(&[
            ("registry.ca", self.ca.is_some()),
            ("registry.certificate", self.certificate.is_some()),
            ("registry.key", self.key.is_some()),
        ])
    }
}

/// The names of the fields that are set.
fn set(fields: &[(&'static str, bool)]) -> Vec<&'static str> {
    let set = fields.iter().filter(|(_, is_set)| *is_set);
    set.map(|(field, _)| *field).collect()
}
