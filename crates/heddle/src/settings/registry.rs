//! Where providers register by themselves, as the file spells it.

use std::path::PathBuf;

use heddle_compile::registered::Layout;
use heddle_registry::{Access, Credentials, Tls};
use serde::{Deserialize, Deserializer, Serialize, Serializer, de};

use super::contradiction::Contradiction;

/// A registry in etcd. None is followed while there is no endpoint.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize, Serialize)]
#[serde(deny_unknown_fields, default)]
pub(crate) struct RegistrySettings {
    /// URLs of the members of etcd.
    pub(crate) etcd: Vec<String>,
    /// What all keys begin with.
    pub(crate) prefix: Prefix,
    /// Who signed the certificates of etcd, in PEM.
    pub(crate) ca: Option<PathBuf>,
    /// Our own certificate in PEM, where etcd asks for one.
    pub(crate) certificate: Option<PathBuf>,
    /// Its private key in PEM.
    pub(crate) key: Option<PathBuf>,
    /// The user that we are to etcd, where it asks for a password.
    pub(crate) user: Option<String>,
    /// The file that holds the password.
    pub(crate) password_file: Option<PathBuf>,
}

/// What all keys of a mesh begin with.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Prefix(pub(crate) Layout);

impl<'de> Deserialize<'de> for Prefix {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = String::deserialize(deserializer)?;
        Layout::parse(&text).map(Prefix).map_err(de::Error::custom)
    }
}

impl Serialize for Prefix {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(self.0.prefix())
    }
}

impl RegistrySettings {
    /// How etcd is reached; `None` when there is no registry.
    ///
    /// # Errors
    /// What contradicts itself, and what to write instead.
    pub(crate) fn access(&self) -> Result<Option<Access>, String> {
        let own =
            match (&self.certificate, &self.key) {
                (Some(certificate), Some(key)) => Some((certificate.clone(), key.clone())),
                (None, None) => None,
                (Some(_), None) => {
                    return Err(
                        "a certificate needs its key: name it with --etcd-key (registry.key)"
                            .to_owned(),
                    );
                }
                (None, Some(_)) => return Err(
                    "a key needs its certificate: name it with --etcd-cert (registry.certificate)"
                        .to_owned(),
                ),
            };
        let credentials = match (&self.user, &self.password_file) {
            (Some(user), Some(password)) => Some(Credentials {
                user: user.clone(),
                password: password.clone(),
            }),
            (None, None) => None,
            (Some(_), None) => return Err("a user needs a file with the password: --etcd-password-file (registry.password_file)".to_owned()),
            (None, Some(_)) => return Err("a password needs a user: --etcd-user (registry.user)".to_owned()),
        };
        if self.etcd.is_empty() {
            let is_alone = own.is_none()
                && credentials.is_none()
                && self.ca.is_none()
                && self.prefix == Prefix::default();
            return match is_alone {
                true => Ok(None),
                false => Err(
                    "there is no registry to use it with: name one with --etcd (registry.etcd)"
                        .to_owned(),
                ),
            };
        }
        let access = Access {
            endpoints: self.etcd.clone(),
            tls: Tls {
                ca: self.ca.clone(),
                own,
            },
            credentials,
        };
        access.check().map_err(|error| error.to_string())?;
        Ok(Some(access))
    }

    pub(super) fn contradiction(&self) -> Option<Contradiction> {
        Some(Contradiction {
            fields: &[
                "registry.etcd",
                "registry.certificate",
                "registry.key",
                "registry.user",
                "registry.password_file",
            ],
            reason: self.access().err()?,
            remedy: "see docs/registry.md".to_owned(),
        })
    }
}
