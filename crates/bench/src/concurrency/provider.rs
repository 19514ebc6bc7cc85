//! The providers, and the folder that tells Heddle of them.

use std::net::Ipv4Addr;

use serde::Serialize;

use crate::systems::render;

/// The Service of all providers.
pub(super) const SERVICE: &str = "provider";

/// A provider that runs, as templates see it.
#[derive(Debug, Clone, Serialize)]
pub(super) struct ProviderEndpoint {
    pub(super) name: &'static str,
    pub(super) address: Ipv4Addr,
    pub(super) port: u16,
    pub(super) room: u32,
}

/// The folder: the Service, and these providers of it. `open`: others may register.
pub(super) fn manifest(
    providers: &[ProviderEndpoint],
    told: bool,
    open: bool,
) -> anyhow::Result<String> {
    render(
        include_str!("../../peers/heddle-concurrency.yaml.j2"),
        minijinja::context! { providers, told, open },
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_folder_lets_providers_register_only_where_they_do() {
        let open = manifest(&[], true, true).expect("renders");
        assert!(open.contains("heddle.dev/registry: allow") && !open.contains("max-requests"));
        let closed = manifest(&[], true, false).expect("renders");
        assert!(!closed.contains("heddle.dev/registry"), "{closed}");
    }
}
