//! The providers, and the manifest that declares them to Heddle.

use std::net::Ipv4Addr;

use serde::Serialize;

use crate::ask;
use crate::systems::render;

/// The Service of all providers.
pub(super) const SERVICE: &str = "provider";

/// The caller of the Service.
pub(super) const CONSUMER: &str = "consumer";

/// A provider that runs, as templates see it.
#[derive(Debug, Clone, Serialize)]
pub(super) struct ProviderEndpoint {
    pub(super) name: &'static str,
    pub(super) address: Ipv4Addr,
    pub(super) port: u16,
    pub(super) room: u32,
}

/// The manifest of the Service with these providers. `told` adds the limit of each, `open` lets others register.
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

/// `Some` if a request gets 200.
pub(super) fn comes_through(target: &str) -> Option<()> {
    let answered = ask::status(target, "GET", "/api/v1/items/ready/0", "ready");
    matches!(answered, Ok(200)).then_some(())
}

/// The providers of a room, at addresses of tests.
#[cfg(test)]
pub(super) fn providers(room: &super::plan::Room) -> Vec<ProviderEndpoint> {
    let provider = |(index, size): (usize, &super::plan::Size)| ProviderEndpoint {
        name: size.name,
        address: std::net::Ipv4Addr::new(127, 3, 0, 1),
        port: 9000 + index as u16,
        room: room.at_once[index],
    };
    super::plan::SIZES
        .iter()
        .enumerate()
        .map(provider)
        .collect()
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
