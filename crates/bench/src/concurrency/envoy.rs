//! Envoy proxies: one for the consumer and one for each provider, all in the same [`EnvoySetup`].

use std::fs;
use std::net::{Ipv4Addr, SocketAddr};
use std::path::Path;

use serde::Serialize;

use super::plan::SIZES;
use super::provider::{CONSUMER, ProviderEndpoint, SERVICE, comes_through};
use super::setups::{EnvoySetup, Waiting, Weights};
use crate::authority::{Authority, identity};
use crate::child::{Child, Confinement};
use crate::nodes::free_address;
use crate::systems::{READY_WITHIN, Running, System, render};

/// The limit of a circuit breaker that never opens.
const UNLIMITED: u32 = 100_000;

/// Starts the proxies, and waits until a request comes through.
///
/// # Errors
/// When a proxy does not start, or no request comes through in time.
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

/// The addresses on which the Envoy of a provider listens: one, or one for each time that the provider is listed. The
/// consumer's Envoy treats each address as a host of its own.
fn addresses(provider: &ProviderEndpoint, setup: &EnvoySetup) -> Vec<Ipv4Addr> {
    let mut sizes = SIZES.iter().filter(|size| size.name == provider.name);
    let times = match setup.weights {
        Weights::Listed => sizes.next().map_or(1, |size| size.times),
        _ => 1,
    };
    let address = |number| Ipv4Addr::from(u32::from(Ipv4Addr::LOCALHOST) + number);
    (0..times).map(address).collect()
}

/// A host of a cluster, as the template sees it.
#[derive(Serialize)]
struct Host {
    address: Ipv4Addr,
    port: u16,
    weight: Option<u32>,
}

/// The hosts that represent a provider.
fn hosts(provider: &ProviderEndpoint, setup: &EnvoySetup) -> Vec<Host> {
    let weight = match setup.weights {
        Weights::None | Weights::Listed => None,
        // With a cluster for each provider the route has the weights.
        _ if setup.waiting == Waiting::Clusters => None,
        Weights::Room => Some(provider.room),
        Weights::RoomSquared => Some(provider.room * provider.room),
    };
    let host = |address| Host {
        address,
        port: provider.port,
        weight,
    };
    let addresses = addresses(provider, setup);
    addresses.into_iter().map(host).collect()
}

/// A cluster, as the template sees it.
#[derive(Serialize)]
struct Cluster {
    name: &'static str,
    max_connections: u32,
    hosts: Vec<Host>,
}

/// The clusters of the consumer's Envoy: one for all providers, or one for each.
fn clusters(providers: &[ProviderEndpoint], setup: &EnvoySetup) -> Vec<Cluster> {
    let of_all = |max_connections| Cluster {
        name: SERVICE,
        max_connections,
        hosts: providers
            .iter()
            .flat_map(|provider| hosts(provider, setup))
            .collect(),
    };
    let of_one = |provider: &ProviderEndpoint| Cluster {
        name: provider.name,
        max_connections: provider.room,
        hosts: hosts(provider, setup),
    };
    match setup.waiting {
        Waiting::Provider => vec![of_all(UNLIMITED)],
        // The limit is for the whole cluster, but the pool of each provider may always open one connection.
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
            addresses => addresses(provider, setup),
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
    use crate::concurrency::setups::Policy;

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

    /// Port and weight of each host in the configuration of the consumer's Envoy.
    fn told(policy: Policy, http2: bool, weights: Weights) -> Vec<(u16, Option<u32>)> {
        let room = ROOMS[1];
        let mut candidates = EnvoySetup::candidates(&room).iter();
        let setup = candidates.find(|setup| {
            (setup.policy, setup.http2, setup.weights) == (policy, http2, weights)
                && setup.waiting == Waiting::Provider
        });
        let setup = setup.expect("a candidate");
        let mut found = Vec::new();
        let address = SocketAddr::from(([127, 0, 0, 1], 8000));
        let text = of_consumer(&providers(&room), setup, address, address, Path::new("/"));
        let text = text.expect("renders");
        let number = |text: &str| text.trim_end_matches([' ', '}']).parse::<u32>();
        for line in text
            .lines()
            .skip_while(|line| !line.contains("lb_endpoints"))
        {
            if let Some((_, port)) = line.split_once("port_value: ") {
                found.push((number(port).expect("a port") as u16, None));
            } else if let Some((_, weight)) = line.split_once("load_balancing_weight: ") {
                found.last_mut().expect("a host").1 = Some(number(weight).expect("a weight"));
            }
        }
        found
    }

    #[test]
    fn weights_are_the_room_or_its_square() {
        let policy = Policy::LeastRequest;
        let of = |weights: [u32; 3]| {
            let ports = [9000, 9001, 9002];
            ports.into_iter().zip(weights.map(Some)).collect::<Vec<_>>()
        };
        for http2 in [false, true] {
            assert_eq!(told(policy, http2, Weights::Room), of([67, 133, 200]));
            let squared = told(policy, http2, Weights::RoomSquared);
            assert_eq!(squared, of([4489, 17_689, 40_000]));
        }
    }

    #[test]
    fn a_provider_is_listed_as_often_as_it_has_parts_of_the_room_and_listens_there() {
        for (policy, http2) in [
            (Policy::FullScan, false),
            (Policy::FullScan, true),
            (Policy::LeastRequest, false),
        ] {
            let ports = told(policy, http2, Weights::Listed);
            let expected = [9000, 9001, 9001, 9002, 9002, 9002].map(|port| (port, None));
            assert_eq!(ports, expected);
        }
        let room = ROOMS[1];
        let listed = EnvoySetup::candidates(&room).iter();
        let listed = listed.filter(|setup| setup.weights == Weights::Listed);
        let address = SocketAddr::from(([127, 0, 0, 1], 8000));
        for setup in listed {
            let far = of_provider(
                &providers(&room)[2],
                setup,
                address,
                address,
                Path::new("/"),
            );
            let far = far.expect("renders");
            for listens in ["127.0.0.1", "127.0.0.2", "127.0.0.3"] {
                let listens = format!("address: {listens}, port_value: 8000 }}");
                assert!(far.contains(&listens), "{far}");
            }
        }
    }

    /// With a cluster for each provider, the route has the weights.
    #[test]
    fn clusters_are_weighed_by_the_route() {
        let room = ROOMS[1];
        let mut candidates = EnvoySetup::candidates(&room).iter();
        let setup = candidates.find(|setup| setup.waiting == Waiting::Clusters);
        let address = SocketAddr::from(([127, 0, 0, 1], 8000));
        let setup = setup.expect("a candidate");
        let text = of_consumer(&providers(&room), setup, address, address, Path::new("/"));
        let text = text.expect("renders");
        assert!(!text.contains("load_balancing_weight"), "{text}");
        for provider in providers(&room) {
            let weighed = format!("name: {}, weight: {} }}", provider.name, provider.room);
            assert!(text.contains(&weighed), "{text}");
        }
    }
}
