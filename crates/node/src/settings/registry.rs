//! Where providers register by themselves, as the file spells it.

use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

use heddle_model::{RegistryEndpointsError, check_registry_endpoints, registry_prefix};

use super::contradiction::Contradiction;

/// What all keys begin with unless the file says it.
const PREFIX: &str = "/heddle/v1/";

/// A registry in etcd. None is followed while there is no endpoint.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize, Serialize)]
#[serde(deny_unknown_fields, default)]
pub struct RegistrySettings {
    /// URLs of the members of etcd.
    pub etcd: Vec<String>,
    /// What all keys begin with.
    pub prefix: String,
    /// Who signed the certificates of etcd, in PEM.
    pub ca: Option<PathBuf>,
    /// Our own certificate in PEM, where etcd asks for one.
    pub certificate: Option<PathBuf>,
    /// Its private key in PEM.
    pub key: Option<PathBuf>,
    /// The user that we are to etcd, where it asks for a password.
    pub user: Option<String>,
    /// The file that holds the password.
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
    /// Our own certificate and its key, where there is one.
    ///
    /// # Errors
    /// When one of the two is missing, and what to write.
    pub fn own(&self) -> Result<Option<(&Path, &Path)>, String> {
        match (&self.certificate, &self.key) {
            (Some(certificate), Some(key)) => Ok(Some((certificate, key))),
            (None, None) => Ok(None),
            (Some(_), None) => Err(
                "a certificate needs its key: name it with --etcd-key (registry.key)".to_owned(),
            ),
            (None, Some(_)) => Err(
                "a key needs its certificate: name it with --etcd-cert (registry.certificate)"
                    .to_owned(),
            ),
        }
    }

    /// The user that we are to etcd, and the file that holds the password.
    ///
    /// # Errors
    /// When one of the two is missing, and what to write.
    pub fn login(&self) -> Result<Option<(&str, &Path)>, String> {
        match (&self.user, &self.password_file) {
            (Some(user), Some(password)) => Ok(Some((user, password))),
            (None, None) => Ok(None),
            (Some(_), None) => Err(
                "a user needs a file with the password: --etcd-password-file (registry.password_file)"
                    .to_owned(),
            ),
            (None, Some(_)) => {
                Err("a password needs a user: --etcd-user (registry.user)".to_owned())
            }
        }
    }

    /// Whether a registry is to be followed.
    ///
    /// # Errors
    /// What contradicts itself, and what to write instead.
    pub fn is_followed(&self) -> Result<bool, String> {
        let (own, login) = (self.own()?, self.login()?);
        let is_default = self.prefix.trim_end_matches('/') == PREFIX.trim_end_matches('/');
        let is_alone = own.is_none() && login.is_none() && self.ca.is_none() && is_default;
        match (self.etcd.is_empty(), is_alone) {
            (false, _) => Ok(true),
            (true, true) => Ok(false),
            (true, false) => Err(
                "there is no registry to use it with: name one with --etcd (registry.etcd)"
                    .to_owned(),
            ),
        }
    }

    /// What each field allows and all of them together do not.
    pub(super) fn contradiction(&self) -> Option<Contradiction> {
        let contradiction = |fields, reason, remedy: &str| {
            Some(Contradiction {
                fields,
                reason,
                remedy: remedy.to_owned(),
            })
        };
        if let Err(reason) = registry_prefix(&self.prefix) {
            let remedy = "see docs/settings.md for what this field takes";
            return contradiction(&["registry.prefix"], reason, remedy);
        }
        let remedy = "see docs/registry.md";
        if let Err(reason) = self.own() {
            let fields = &["registry.certificate", "registry.key"];
            return contradiction(fields, reason, remedy);
        }
        if let Err(reason) = self.login() {
            let fields = &["registry.user", "registry.password_file"];
            return contradiction(fields, reason, remedy);
        }
        match self.is_followed() {
            Ok(true) => {}
            Ok(false) => return None,
            Err(reason) => {
                let fields = &[
                    "registry.ca",
                    "registry.certificate",
                    "registry.key",
                    "registry.user",
                    "registry.password_file",
                    "registry.prefix",
                ];
                return contradiction(fields, reason, remedy);
            }
        }
        let has_certificates = self.ca.is_some() || self.certificate.is_some();
        let checked =
            check_registry_endpoints(&self.etcd, has_certificates, self.ca.is_some()).err()?;
        let fields: &[&str] = match checked {
            RegistryEndpointsError::NoUseForCertificates => &[
                "registry.ca",
                "registry.certificate",
                "registry.key",
                "registry.etcd",
            ],
            _ => &["registry.etcd"],
        };
        contradiction(fields, checked.to_string(), remedy)
    }
}
