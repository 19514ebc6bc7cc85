//! Where providers register by themselves, as the file spells it. What is written is judged by programs that follow a
//! registry, which a node does not.

use std::path::PathBuf;

use serde::{Deserialize, Serialize};

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
            prefix: "/heddle/v1/".to_owned(),
            ca: None,
            certificate: None,
            key: None,
            user: None,
            password_file: None,
        }
    }
}
