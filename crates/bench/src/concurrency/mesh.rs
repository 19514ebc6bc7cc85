//! The systems that are measured: a proxy for the consumer, and one for each provider.

use super::envoy;
use super::plan::{Room, SIZES};
use super::provider::{CONSUMER, ProviderEndpoint, SERVICE, comes_through};
use super::registry::{Abilities, Registered};
use super::setups::EnvoySetup;
use crate::authority::Authority;
use crate::child::Confinement;
use crate::nodes::{self, MeshProcesses, NEAR, Site};
use crate::systems::{READY_WITHIN, Running, System};

/// A system that is loaded: all proxies of one program, in one configuration.
#[derive(Clone)]
pub(super) struct Contender<'a> {
    pub(super) system: &'a System,
    /// The configuration of Envoys; `None` for Heddle, which has only one.
    pub(super) setup: Option<EnvoySetup>,
}

/// Starts a system for these providers, and waits until a request comes through.
///
/// # Errors
/// When something does not start, or no request comes through in time.
pub(super) fn start(
    contender: &Contender,
    providers: &[ProviderEndpoint],
    room: &Room,
    place: &Confinement,
    abilities: &Abilities,
) -> anyhow::Result<Running> {
    let system = contender.system;
    let dir = tempfile::Builder::new().prefix("heddle-lab-").tempdir()?;
    let root = Authority::new()?;
    match &contender.setup {
        Some(setup) => envoy::start(system, setup, providers, place, &root, dir),
        None => {
            let registered = abilities.register(&system.program, providers, room, dir.path())?;
            heddles(system, registered, place, &root, dir)
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
        control_settings: None,
        settings: system.settings.as_deref(),
        apart: None,
        root,
    };
    let names: Vec<&str> = [NEAR]
        .into_iter()
        .chain(SIZES.map(|size| size.name))
        .collect();
    let MeshProcesses {
        mut nodes, control, ..
    } = MeshProcesses::start(&site, &names)?;
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

/// The consumer's listener for the Service in its node's status, as a load target.
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::concurrency::plan::ROOMS;
    use crate::concurrency::provider::{manifest, providers};

    #[test]
    fn heddle_is_told_of_every_provider_and_of_room_where_it_is_limited() {
        for room in ROOMS {
            let providers = providers(&room);
            let heddle = manifest(&providers, room.told, false).expect("renders");
            for (provider, size) in providers.iter().zip(SIZES) {
                assert!(
                    heddle.contains(&format!("nodeName: {}", size.name)),
                    "{heddle}"
                );
                assert!(heddle.contains(&format!("port: {}", provider.port)));
                let limit = format!("heddle.dev/max-requests: \"{}\"", provider.room);
                assert_eq!(heddle.contains(&limit), room.told);
            }
            assert!(!heddle.contains("{{") && !heddle.contains("{%"), "{heddle}");
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
