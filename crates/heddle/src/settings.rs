//! The settings of what no node has: manifests, the authority, a registry.

use heddle_authority::AuthoritySettings;
use heddle_compile::registered::Layout;
use heddle_compile::{Options, Placement};
use heddle_node::settings::{Control, MeshSettings, RegistrySettings};
use heddle_registry::{Access, Credentials, Tls};

#[cfg(test)]
mod tests;

/// What compiling takes, for one node.
pub(crate) fn options(mesh: &MeshSettings) -> Options {
    Options {
        trust_domain: mesh.trust_domain.clone(),
        default_mode: mesh.mode,
        ..Options::default()
    }
}

/// The same for a control plane: each workload says which node it is on.
pub(crate) fn options_by_node(mesh: &MeshSettings) -> Options {
    Options {
        placement: Placement::ByNode,
        ..options(mesh)
    }
}

/// The lifetimes as the authority takes them.
pub(crate) fn lifetimes(control: &Control) -> AuthoritySettings {
    AuthoritySettings {
        leaf_life: control.leaf_life(),
        backdate: control.backdate(),
        root_life: control.root_life(),
    }
}

/// How etcd is reached, and what all keys there begin with; `None` when there is no registry.
///
/// # Errors
/// When the prefix is none: settings that were checked have one.
pub(crate) fn registry(settings: &RegistrySettings) -> Result<Option<(Access, Layout)>, String> {
    let layout = Layout::parse(&settings.prefix).map_err(|error| error.to_string())?;
    Ok(access(settings).map(|access| (access, layout)))
}

/// Of a pair there are both, once settings were checked.
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
