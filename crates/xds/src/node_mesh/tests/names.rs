//! What is known of the names that a node uses, whatever is said in whatever order.

use std::collections::BTreeMap;
use std::net::IpAddr;

use heddle_model::{Service, WorkloadName};
use proptest::collection::vec;
use proptest::prelude::*;

use super::*;
use crate::node_mesh::Touched;
use crate::resources::{AddressOf, Holder};

/// A step of a node and of its control plane, in any order.
#[derive(Debug, Clone)]
enum Step {
    Want(usize),
    Forget(usize),
    Sends(usize, bool),
    Removes(usize),
    /// Refused, since it cannot be read.
    Breaks(usize),
    Reads,
    Marks(u64),
    Connects,
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        4 => (0..6_usize).prop_map(Step::Want),
        2 => (0..6_usize).prop_map(Step::Forget),
        4 => (0..6_usize, any::<bool>()).prop_map(|(number, is_other)| Step::Sends(number, is_other)),
        3 => (0..6_usize).prop_map(Step::Removes),
        1 => (0..6_usize).prop_map(Step::Breaks),
        4 => Just(Step::Reads),
        6 => (0..3_u64).prop_map(Step::Marks),
        1 => Just(Step::Connects),
    ]
}

/// Three addresses and three Services, by their cluster addresses.
fn named(number: usize) -> (Type, String, Dependency) {
    match number {
        0..3 => {
            let address: IpAddr = [10, 96, 0, number as u8].into();
            (
                Type::Address,
                address.to_string(),
                Dependency::Address(address),
            )
        }
        _ => {
            let service = ServiceName::new("shop", &format!("s{number}")).unwrap();
            (
                Type::Service,
                service.to_string(),
                Dependency::Service(service),
            )
        }
    }
}

fn resource(number: usize, is_other: bool) -> Resource {
    match named(number).2 {
        Dependency::Address(address) => Resource::Address(AddressOf {
            address,
            holders: vec![Holder {
                workload: WorkloadName::new("shop", "w").unwrap(),
                node: None,
                first: None,
            }],
        }),
        Dependency::Service(name) => Resource::Service(Service {
            name,
            headless: false,
            addresses: vec![[10, 96, 0, (number - 3) as u8 + u8::from(is_other)].into()],
            balancer: Default::default(),
            balancing: Default::default(),
            ports: Vec::new(),
        }),
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(500))]

    /// What is known of names is followed by what is said of each; it is what a look at all of them finds.
    #[test]
    fn what_is_known_of_names_is_what_a_look_at_all_finds(steps in vec(step(), 0..60)) {
        let mut mesh = NodeMesh::on_demand(own());
        mesh.connected();
        let mut said_so_far = said(&mut mesh).len() as u64;
        mesh.accept(first()).unwrap();
        let mut told = BTreeMap::new();
        for (at, step) in steps.into_iter().enumerate() {
            let sends = |number: usize, content| {
                let (kind, name, _) = named(number);
                response(kind, vec![Sent { name, version: format!("{at}"), content }], "n")
            };
            match step {
                Step::Want(number) => drop(mesh.want(&named(number).2)),
                Step::Forget(number) => mesh.forget(&named(number).2),
                Step::Sends(number, is_other) => {
                    let content = resource(number, is_other).encode();
                    mesh.accept(sends(number, content)).unwrap();
                }
                Step::Breaks(number) => drop(mesh.accept(sends(number, vec![0xff].into())).unwrap()),
                Step::Removes(number) => {
                    let (kind, name, _) = named(number);
                    let mut gone = response(kind, Vec::new(), "n");
                    gone.removed = vec![name];
                    mesh.accept(gone).unwrap();
                }
                Step::Reads => said_so_far += said(&mut mesh).len() as u64,
                Step::Connects => {
                    mesh.connected();
                    said_so_far = said(&mut mesh).len() as u64;
                    mesh.accept(first()).unwrap();
                }
                Step::Marks(behind) => {
                    let covers = said_so_far.saturating_sub(behind).max(1);
                    let Some(update) = mesh.accept(mark_of("first", at as u64, covers)).unwrap() else {
                        continue;
                    };
                    told.extend(update.answered);
                    for (one, state) in update.mesh.named.iter().flat_map(|named| named.iter()) {
                        prop_assert_eq!(told.get(one), Some(state), "{} was not told", one);
                    }
                    mesh.states.touched = Touched::All;
                    mesh.find_states();
                    let all = mesh.states.all();
                    prop_assert_eq!(update.mesh.named, Some(all));
                }
            }
        }
    }
}
