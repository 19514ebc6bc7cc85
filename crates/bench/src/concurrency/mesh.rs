//! The systems: a proxy for the consumer, and one for each provider.

use std::fs;
use std::net::{Ipv4Addr, SocketAddr};

use super::plan::{Room, SIZES};
use super::provider::{ProviderEndpoint, SERVICE};
use super::registry::{Abilities, Registered};
use crate::ask;
use crate::authority::{Authority, identity};
use crate::child::{Child, Confinement};
use crate::nodes::{self, MeshProcesses, NEAR, Site, free_address};
use crate::systems::{ProxyKind, READY_WITHIN, Running, System, render};

/// Who calls the Service.
const CONSUMER: &str = "consumer";

/// Starts a system for these providers, and waits until a request comes through.
///
/// # Errors
/// When something does not start, or no request comes through in time.
pub(super) fn start(
    system: &System,
    providers: &[ProviderEndpoint],
    room: &Room,
    place: &Confinement,
    abilities: &Abilities,
) -> anyhow::Result<Running> {
    let dir = tempfile::Builder::new().prefix("heddle-lab-").tempdir()?;
    let root = Authority::new()?;
    match system.kind {
        ProxyKind::Heddle => {
            let registered = abilities.register(&system.program, providers, room, dir.path())?;
            heddles(system, registered, place, &root, dir)
        }
        ProxyKind::Envoy => envoys(system, providers, room, place, &root, dir),
        ProxyKind::Haproxy | ProxyKind::Nginx | ProxyKind::H2 => {
            anyhow::bail!("{} is not measured here", system.name)
        }
    }
}

fn heddles(
    system: &System,
    registered: Registered,
    place: &Confinement,
    root: &Authority,
    dir: tempfile::TempDir,
) -> anyhow::Result<Running> {
    let site = Site {
        etcd: registered.url.as_deref(),
        heddle: &system.program,
        dir: dir.path(),
        place,
        settings: system.settings.as_deref(),
        apart: None,
        root,
    };
    let names: Vec<&str> = [NEAR]
        .into_iter()
        .chain(SIZES.map(|size| size.name))
        .collect();
    let MeshProcesses { mut nodes, control } = MeshProcesses::start(&site, &names)?;
    let near = &mut nodes[0];
    let (heddle, socket) = (near.heddle.clone(), near.socket.clone());
    let target = near.child.wait_until(READY_WITHIN, || {
        let target = target(&nodes::status(&heddle, &socket)?)?;
        comes_through(&target)?;
        Some(target)
    })?;
    let children = nodes.into_iter().map(|node| node.child).collect();
    let mut beside = vec![control];
    beside.extend(registered.processes);
    Ok(Running::of(children, vec![target], beside, dir))
}

/// Where the consumer reaches the Service, out of its node's status.
fn target(status: &[u8]) -> Option<String> {
    let status: serde_json::Value = serde_json::from_slice(status).ok()?;
    let found = status
        .get("listeners")?
        .as_array()?
        .iter()
        .find(|listener| {
            listener["service"] == format!("lab/{SERVICE}").as_str()
                && listener["caller"] == format!("lab/{CONSUMER}").as_str()
                && listener["kind"] == "service"
        })?;
    Some(format!("{SERVICE}.lab@{}", found["address"].as_str()?))
}

fn envoys(
    system: &System,
    providers: &[ProviderEndpoint],
    room: &Room,
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
        let text = envoy_of_provider(provider, room, listen, free_address()?, &dir)?;
        far.push(start(provider.name, text)?);
        between.push(ProviderEndpoint {
            address: Ipv4Addr::LOCALHOST,
            port: listen.port(),
            ..provider.clone()
        });
    }
    let listen = free_address()?;
    let text = envoy_of_consumer(&between, room, listen, free_address()?, &dir)?;
    let mut children = vec![start(CONSUMER, text)?];
    let target = format!("{SERVICE}.lab@{listen}");
    children[0].wait_until(READY_WITHIN, || comes_through(&target))?;
    children.extend(far);
    Ok(Running::of(children, vec![target], Vec::new(), dir))
}

fn envoy_of_consumer(
    providers: &[ProviderEndpoint],
    room: &Room,
    listen: SocketAddr,
    admin: SocketAddr,
    dir: &tempfile::TempDir,
) -> anyhow::Result<String> {
    render(
        include_str!("../../peers/envoy-consumer.yaml.j2"),
        minijinja::context! {
            providers,
            told => room.told,
            identity => identity(SERVICE)?.to_string(),
            listen_port => listen.port(),
            admin_port => admin.port(),
            dir => dir.path().display().to_string(),
        },
    )
}

fn envoy_of_provider(
    provider: &ProviderEndpoint,
    room: &Room,
    listen: SocketAddr,
    admin: SocketAddr,
    dir: &tempfile::TempDir,
) -> anyhow::Result<String> {
    render(
        include_str!("../../peers/envoy-provider.yaml.j2"),
        minijinja::context! {
            provider,
            told => room.told,
            listen_port => listen.port(),
            admin_port => admin.port(),
            dir => dir.path().display().to_string(),
        },
    )
}

/// Whether a request is answered.
fn comes_through(target: &str) -> Option<()> {
    let answered = ask::status(target, "GET", "/api/v1/items/ready/0", "ready");
    matches!(answered, Ok(200)).then_some(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::concurrency::plan::ROOMS;
    use crate::concurrency::provider::manifest;

    fn providers(room: &Room) -> Vec<ProviderEndpoint> {
        let provider = |(index, size): (usize, &super::super::plan::Size)| ProviderEndpoint {
            name: size.name,
            address: Ipv4Addr::new(127, 3, 0, 1),
            port: 9000 + index as u16,
            room: room.at_once[index],
        };
        SIZES.iter().enumerate().map(provider).collect()
    }

    #[test]
    fn every_system_is_told_of_every_provider_and_of_room_where_it_is_limited() {
        for room in ROOMS {
            let providers = providers(&room);
            let heddle = manifest(&providers, room.told, false).expect("renders");
            let dir = tempfile::tempdir().expect("a folder");
            let address = SocketAddr::from(([127, 0, 0, 1], 8000));
            let envoy = envoy_of_consumer(&providers, &room, address, address, &dir);
            let envoy = envoy.expect("renders");
            for (provider, size) in providers.iter().zip(SIZES) {
                assert!(
                    heddle.contains(&format!("nodeName: {}", size.name)),
                    "{heddle}"
                );
                assert!(heddle.contains(&format!("port: {}", provider.port)));
                assert!(
                    envoy.contains(&format!("port_value: {}", provider.port)),
                    "{envoy}"
                );
                let limit = format!("heddle.dev/max-requests: \"{}\"", provider.room);
                assert_eq!(heddle.contains(&limit), room.told);
                let far = envoy_of_provider(provider, &room, address, address, &dir);
                let far = far.expect("renders");
                assert!(
                    far.contains(&format!("port_value: {}", provider.port)),
                    "{far}"
                );
                for text in [&heddle, &envoy, &far] {
                    assert!(!text.contains("{{") && !text.contains("{%"), "{text}");
                }
            }
        }
    }

    #[test]
    fn the_consumer_has_a_listener_of_its_own() {
        let status = br#"{"listeners":[
            {"service":"lab/provider","caller":null,"kind":"service","address":"127.64.0.1:80"},
            {"service":"lab/provider","caller":"lab/consumer","kind":"service","address":"127.64.0.2:80"}
        ]}"#;
        assert_eq!(
            target(status).as_deref(),
            Some("provider.lab@127.64.0.2:80")
        );
        assert_eq!(target(br#"{"listeners":[]}"#), None);
    }
}
