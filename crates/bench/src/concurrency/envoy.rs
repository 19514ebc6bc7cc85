//! Envoys: one for the consumer and one for each provider, in one of their configurations.

use std::fs;
use std::net::{Ipv4Addr, SocketAddr};
use std::path::Path;

use serde::Serialize;

use super::provider::{CONSUMER, ProviderEndpoint, SERVICE, comes_through};
use super::setups::{EnvoySetup, Waiting};
use crate::authority::{Authority, identity};
use crate::child::{Child, Confinement};
use crate::nodes::free_address;
use crate::systems::{READY_WITHIN, Running, System, render};

/// A circuit breaker that is wide open.
const UNLIMITED: u32 = 100_000;

/// Starts them, and waits until a request comes through.
///
/// # Errors
/// When one does not start, or no request comes through in time.
pub(super) fn start(
    system: &System,
    setup: &EnvoySetup,
    providers: &[ProviderEndpoint],
    place: &Confinement,
    root: &Authority,
    dir: tempfile::TempDir,
) -> anyhow::Result<Running> {
    root.write_root(dir.path())?;
    for account in [CONSUMER, SERVICE] {
        root.leaf(account)?.write(dir.path(), account)?;
    }
    let start = |name: &str, text: String| {
        let config = dir.path().join(format!("{name}.yaml"));
        fs::write(&config, text)?;
        let mut command = vec![system.program.clone().into()];
        command.extend(system.arguments(&config, dir.path()));
        let log = dir.path().join(format!("{name}.log"));
        let name = format!("{} {name}", system.name);
        Child::start(&name, place, &command, &log, false)
    };
    let mut far = Vec::new();
    let mut between = Vec::new();
    for provider in providers {
        let listen = free_address()?;
        let text = of_provider(provider, setup, listen, free_address()?, dir.path())?;
        far.push(start(provider.name, text)?);
        between.push(ProviderEndpoint {
            address: Ipv4Addr::LOCALHOST,
            port: listen.port(),
            ..provider.clone()
        });
    }
    let listen = free_address()?;
    let text = of_consumer(&between, setup, listen, free_address()?, dir.path())?;
    let mut children = vec![start(CONSUMER, text)?];
    let target = format!("{SERVICE}.lab@{listen}");
    children[0].wait_until(READY_WITHIN, || comes_through(&target))?;
    children.extend(far);
    Ok(Running::of(children, vec![target], Vec::new(), dir))
}

/// A cluster, as the template sees it.
#[derive(Serialize)]
struct Cluster<'a> {
    name: &'a str,
    max_connections: u32,
    providers: &'a [ProviderEndpoint],
}

/// The clusters of the consumer's Envoy: one for all providers, or one for each.
fn clusters<'a>(providers: &'a [ProviderEndpoint], setup: &EnvoySetup) -> Vec<Cluster<'a>> {
    let of_all = |max_connections| Cluster {
        name: SERVICE,
        max_connections,
        providers,
    };
    let of_one = |provider: &'a ProviderEndpoint| Cluster {
        name: provider.name,
        max_connections: provider.room,
        providers: std::slice::from_ref(provider),
    };
    match setup.waiting {
        Waiting::Provider => vec![of_all(UNLIMITED)],
        // Connections are of the pool of each provider, which may always have one.
        Waiting::Streams => vec![of_all(1)],
        Waiting::Clusters => providers.iter().map(of_one).collect(),
    }
}

fn of_consumer(
    providers: &[ProviderEndpoint],
    setup: &EnvoySetup,
    listen: SocketAddr,
    admin: SocketAddr,
    dir: &Path,
) -> anyhow::Result<String> {
    render(
        include_str!("../../peers/envoy-consumer.yaml.j2"),
        minijinja::context! {
            providers,
            clusters => clusters(providers, setup),
            setup,
            identity => identity(SERVICE)?.to_string(),
            listen_port => listen.port(),
            admin_port => admin.port(),
            dir => dir.display().to_string(),
        },
    )
}

fn of_provider(
    provider: &ProviderEndpoint,
    setup: &EnvoySetup,
    listen: SocketAddr,
    admin: SocketAddr,
    dir: &Path,
) -> anyhow::Result<String> {
    render(
        include_str!("../../peers/envoy-provider.yaml.j2"),
        minijinja::context! {
            provider,
            setup,
            listen_port => listen.port(),
            admin_port => admin.port(),
            dir => dir.display().to_string(),
        },
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::concurrency::plan::ROOMS;
    use crate::concurrency::provider::providers;

    #[test]
    fn every_configuration_names_every_provider_and_keeps_room_where_it_says_so() {
        let address = SocketAddr::from(([127, 0, 0, 1], 8000));
        let dir = Path::new("/nowhere");
        for room in ROOMS {
            let providers = providers(&room);
            for setup in EnvoySetup::candidates(&room) {
                let near = of_consumer(&providers, setup, address, address, dir);
                let near = near.expect("renders");
                for provider in &providers {
                    let far = of_provider(provider, setup, address, address, dir);
                    let far = far.expect("renders");
                    let port = format!("port_value: {}", provider.port);
                    assert!(near.contains(&port) && far.contains(&port), "{near}{far}");
                    let weight = format!("load_balancing_weight: {}", provider.room);
                    let cluster = format!("weight: {} }}", provider.room);
                    let weighs = near.contains(&weight) || near.contains(&cluster);
                    assert_eq!(weighs, setup.weights, "{near}");
                    let streams = format!("max_concurrent_streams: {}", provider.room);
                    let streams = far.contains(&streams);
                    assert_eq!(streams, setup.waiting == Waiting::Streams, "{far}");
                    let connections = format!("max_connections: {}, ", provider.room);
                    let connections = near.contains(&connections);
                    assert_eq!(connections, setup.waiting == Waiting::Clusters, "{near}");
                    for text in [&near, &far] {
                        assert!(!text.contains("{{") && !text.contains("{%"), "{text}");
                    }
                    assert_eq!(far.contains("HTTP2"), setup.http2);
                }
            }
        }
    }
}
