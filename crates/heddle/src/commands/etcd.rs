//! Flags of all commands that connect to etcd.

use std::path::PathBuf;

use heddle_compile::registered::Layout;
use heddle_node::settings::GivenSettings;

/// Flags for the connection to etcd.
#[derive(Debug, Clone, clap::Args)]
#[command(next_help_heading = "Registry")]
pub(crate) struct Etcd {
    /// Members of an etcd, such as http://127.0.0.1:2379; several with commas between them
    #[arg(long = "etcd", value_name = "URL", value_delimiter = ',')]
    endpoints: Vec<String>,
    /// Prefix of all keys [default: /heddle/v1/]
    #[arg(long = "etcd-prefix", value_name = "PREFIX", value_parser = Layout::parse)]
    prefix: Option<Layout>,
    /// CA certificates that signed those of etcd, in PEM: for https endpoints
    #[arg(long = "etcd-ca", value_name = "FILE")]
    ca: Option<PathBuf>,
    /// The certificate to show to etcd, in PEM
    #[arg(long = "etcd-cert", value_name = "FILE")]
    certificate: Option<PathBuf>,
    /// Its private key, in PEM
    #[arg(long = "etcd-key", value_name = "FILE")]
    key: Option<PathBuf>,
    /// User name at etcd
    #[arg(long = "etcd-user", value_name = "NAME")]
    user: Option<String>,
    /// The file that holds the user's password
    #[arg(long = "etcd-password-file", value_name = "FILE")]
    password_file: Option<PathBuf>,
}

impl Etcd {
    /// Overrides the file's values by these flags.
    pub(super) fn over(self, given: &mut GivenSettings) {
        let endpoints = Some(self.endpoints).filter(|endpoints| !endpoints.is_empty());
        given.flag("--etcd", "registry.etcd", endpoints, |to, endpoints| {
            to.registry.etcd = endpoints;
        });
        let prefix = self.prefix;
        given.flag("--etcd-prefix", "registry.prefix", prefix, |to, prefix| {
            to.registry.prefix = prefix.prefix().to_owned();
        });
        given.flag("--etcd-ca", "registry.ca", self.ca, |to, file| {
            to.registry.ca = Some(file);
        });
        let own = self.certificate;
        given.flag("--etcd-cert", "registry.certificate", own, |to, file| {
            to.registry.certificate = Some(file);
        });
        given.flag("--etcd-key", "registry.key", self.key, |to, file| {
            to.registry.key = Some(file);
        });
        given.flag("--etcd-user", "registry.user", self.user, |to, name| {
            to.registry.user = Some(name);
        });
        let (flag, password) = ("--etcd-password-file", self.password_file);
        given.flag(flag, "registry.password_file", password, |to, file| {
            to.registry.password_file = Some(file);
        });
    }
}
