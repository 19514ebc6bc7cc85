//! A catalog that follows a mesh is that of the mesh, whatever was before.

use std::collections::BTreeMap;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::sync::Mutex;

use heddle_model::{Mesh, Node, Shared, Workload};
use proptest::prelude::*;

use super::*;
use crate::changes::Changes;
use crate::subscriptions::tests::{Choice, NODES, mesh};

/// What happens to the workload of a number, or to the nodes.
#[derive(Debug, Clone)]
enum Edit {
    Is(Choice),
    IsGone(u8),
    /// It has this address beside its own.
    Shares(u8, u8),
    NodeIs(usize, u16),
}

fn edit() -> impl Strategy<Value = Edit> {
    let node = prop::option::weighted(0.9, 0..NODES.len());
    let choice = (0..12u8, node, any::<bool>(), 0..3u32);
    prop_oneof![
        6 => choice.prop_map(Edit::Is),
        2 => (0..12u8).prop_map(Edit::IsGone),
        1 => (0..12u8, 0..12u8).prop_map(|(one, other)| Edit::Shares(one, other)),
        1 => (0..NODES.len(), 1..4u16).prop_map(|(at, port)| Edit::NodeIs(at, port)),
    ]
}

/// The mesh, which shares with the one before what is the same.
fn sharing(mut mesh: Mesh, before: &Mesh) -> Mesh {
    for service in &mut mesh.services {
        let known = before.services.iter().find(|known| known == &service);
        known.into_iter().for_each(|known| *service = known.clone());
    }
    let shared = |one: &mut Shared<Workload>| {
        let known = before.workloads.iter().find(|known| known == &one);
        known.into_iter().for_each(|known| *one = known.clone());
    };
    mesh.workloads.iter_mut().for_each(shared);
    mesh
}

fn assert_same(one: &Catalog, other: &Catalog) -> Result<(), TestCaseError> {
    for kind in Type::ALL {
        let [one, other] = [one, other].map(|of| &of.types[kind as usize]);
        prop_assert_eq!(one, other, "{}", kind.message_name());
    }
    prop_assert_eq!(&one.own, &other.own);
    prop_assert_eq!(&one.everyones, &other.everyones);
    prop_assert_eq!(&one.index, &other.index);
    Ok(())
}

proptest! {
    #[test]
    fn it_is_that_of_a_fresh_start(edits in prop::collection::vec((edit(), any::<bool>()), 1..24)) {
        let (catalog, mut changes) = (Mutex::new(Catalog::default()), Changes::default());
        let mut choices = BTreeMap::new();
        let (mut shares, mut nodes) = (BTreeMap::new(), BTreeMap::new());
        let mut before = Mesh::default();
        for (edit, is_shared) in edits {
            match edit {
                Edit::Is(choice) => drop(choices.insert(choice.0, choice)),
                Edit::IsGone(number) => drop(choices.remove(&number)),
                Edit::Shares(one, other) => drop(shares.insert(one, other)),
                Edit::NodeIs(at, port) => drop(nodes.insert(NODES[at], port)),
            }
            let mut now = mesh(&choices);
            for (workload, number) in now.workloads.iter_mut().zip(choices.keys()) {
                let also = shares.get(number).map(|other| IpAddr::V4(Ipv4Addr::new(127, 1, 0, other + 1)));
                workload.more_addresses = also.into_iter().filter(|also| *also != workload.address).collect();
            }
            now.nodes = nodes.iter().map(|(name, port)| Node {
                name: NodeName::parse(name).unwrap(),
                address: SocketAddr::from(([127, 2, 0, 1], *port)),
            }).collect();
            let now = if is_shared { sharing(now, &before) } else { now };
            let change = changes.of(now.clone().into(), &catalog);
            let touched = change.set.len() + change.removed.len();
            catalog.lock().unwrap().apply(change);
            prop_assert!(touched > 0 || now == before, "a change is noted");
            let fresh = Mutex::new(Catalog::default());
            let change = Changes::default().of(now.clone().into(), &fresh);
            fresh.lock().unwrap().apply(change);
            assert_same(&catalog.lock().unwrap(), &fresh.lock().unwrap())?;
            let again = changes.of(now.clone().into(), &catalog);
            prop_assert!(again.set.is_empty() && again.removed.is_empty(), "the same changes nothing");
            prop_assert!(again.own.is_empty() && again.bound.is_empty());
            catalog.lock().unwrap().apply(again);
            before = now;
        }
    }
}
