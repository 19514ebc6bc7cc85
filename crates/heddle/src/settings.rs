//! Converts settings that no node uses: manifests, the authority, a registry.

use std::collections::BTreeSet;

use heddle_authority::AuthoritySettings;
use heddle_compile::registered::Layout;
use heddle_compile::{Options, Placement};
use heddle_model::Cidr;
use heddle_node::settings::{Control, MeshSettings, RegistrySettings};
use heddle_registry::{Access, Credentials, Tls};

#[cfg(test)]
mod tests;

/// Options for compiling a folder for a single node.
pub(crate) fn options(mesh: &MeshSettings) -> Options {
    let address_ranges: BTreeSet<Cidr> = mesh.address_ranges.iter().copied().collect();
    Options {
        address_ranges: address_ranges.into_iter().collect(),
        trust_domain: mesh.trust_domain.clone(),
        default_mode: mesh.mode,
        lazy_envoys: mesh.lazy_envoys,
        ..Options::default()
    }
}

/// Options for a control plane: each workload names its node.
pub(crate) fn options_by_node(mesh: &MeshSettings) -> Options {
    Options {
        placement: Placement::ByNode,
        ..options(mesh)
    }
}

/// Certificate lifetimes in the authority's form.
pub(crate) fn lifetimes(control: &Control) -> AuthoritySettings {
    AuthoritySettings {
        leaf_life: control.leaf_life(),
        backdate: control.backdate(),
        root_life: control.root_life(),
    }
}

/// Access to etcd, and the prefix of all keys there; `None` when no registry is configured.
///
/// # Errors
/// When the prefix is invalid; checked settings have a valid one.
pub(crate) fn registry(settings: &RegistrySettings) -> Result<Option<(Access, Layout)>, String> {
    let layout = Layout::parse(&settings.prefix).map_err(|error| error.to_string())?;
    Ok(access(settings).map(|access| (access, layout)))
}

/// Checked settings have either both parts of a pair (certificate and key, user and password) or none.
fn access(settings: &RegistrySettings) -> Option<Access> {
    let is_followed = !settings.etcd.is_empty();
    let own = settings.certificate.clone().zip(settings.key.clone());
    let login = settings.user.clone().zip(settings.password_file.clone());
    is_followed.then(|| Access {
        endpoints: settings.etcd.clone(),
        tls: Tls {
            ca: settings.ca.clone(),
            own,
        },
        credentials: login.map(|(user, password)| Credentials { user, password }),
    })
}
