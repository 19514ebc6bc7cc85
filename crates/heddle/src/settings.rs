//! The settings of what no node has: manifests, the authority, a registry.

use std::path::Path;

use heddle_authority::AuthoritySettings;
use heddle_compile::registered::Layout;
use heddle_compile::{Options, Placement};
use heddle_node::exit::{Exit, Failure};
use heddle_node::settings::{Control, MeshSettings, RegistrySettings, Settings};
use heddle_registry::{Access, Credentials, Tls};

#[cfg(test)]
mod tests;

/// The settings of a file, or the defaults.
///
/// # Errors
/// As [`Settings::load`].
pub(crate) fn given(file: Option<&Path>) -> Result<Settings, Failure> {
    let settings = file.map(Settings::load).transpose();
    let settings = settings.map_err(|error| Failure::new(Exit::Refused, error))?;
    Ok(settings.unwrap_or_default())
}

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
/// What contradicts itself, and what to write instead.
pub(crate) fn registry(settings: &RegistrySettings) -> Result<Option<(Access, Layout)>, String> {
    let layout = Layout::parse(&settings.prefix).map_err(|error| error.to_string())?;
    Ok(access(settings)?.map(|access| (access, layout)))
}

fn access(settings: &RegistrySettings) -> Result<Option<Access>, String> {
    if !settings.is_followed()? {
        return Ok(None);
    }
    let owned = |(certificate, key): (&Path, &Path)| (certificate.to_owned(), key.to_owned());
    let credentials = |(user, password): (&str, &Path)| Credentials {
        user: user.to_owned(),
        password: password.to_owned(),
    };
    let access = Access {
        endpoints: settings.etcd.clone(),
        tls: Tls {
            ca: settings.ca.clone(),
            own: settings.own()?.map(owned),
        },
        credentials: settings.login()?.map(credentials),
    };
    access.check().map_err(|error| error.to_string())?;
    Ok(Some(access))
}
