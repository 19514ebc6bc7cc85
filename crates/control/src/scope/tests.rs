//! A scope that follows what a node names is the one that would be found anew.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex};

use heddle_model::NodeName;
use heddle_xds::delta::Name;
use heddle_xds::resources::Type;
use proptest::prelude::*;

use super::{Scope, Touched};
use crate::catalog::{Catalog, Own};
use crate::changed::Fingerprint;
use crate::changes::Changes;
use crate::subscriptions::tests::Choice;
use crate::subscriptions::tests::on_demand::routed;

/// The content of a scope, in order.
fn content(scope: &Scope) -> (Vec<String>, Vec<Name>, Vec<Fingerprint>, Vec<Name>) {
    let mut fingerprints = scope.fingerprints.clone();
    fingerprints.sort_unstable();
    let addresses = scope.addresses.iter().map(ToString::to_string);
    (
        addresses.collect(),
        scope.services.iter().cloned().collect(),
        fingerprints,
        scope.nodes.iter().cloned().collect(),
    )
}

fn found(catalog: &Catalog, own: &Own, named: &BTreeSet<(Type, Name)>) -> Scope {
    let of = |kind: Type| {
        let named = named.iter().filter(move |(of, _)| *of == kind);
        named.map(|(_, name)| name)
    };
    Scope::new(catalog, own, of(Type::Service), of(Type::Address))
}

/// Names of Services and addresses, of which some do not exist, and one is not in its usual form.
fn name() -> impl Strategy<Value = (Type, Name)> {
    let service = (0..9_u8).prop_map(|number| (Type::Service, format!("shop/s{number}")));
    let cluster = (1..9_u8).prop_map(|number| (Type::Address, format!("10.96.0.{number}")));
    let workload = (1..14_u8).prop_map(|number| (Type::Address, format!("127.1.0.{number}")));
    let others = prop_oneof![Just("0:0::1"), Just("::1"), Just("")];
    let others = others.prop_map(|name| (Type::Address, name.to_owned()));
    let name = prop_oneof![4 => service, 2 => cluster, 2 => workload, 1 => others];
    name.prop_map(|(kind, name)| (kind, Name::from(name)))
}

proptest! {
    #[test]
    fn it_is_the_one_that_would_be_found_anew(
        choices in prop::collection::btree_map(
            0..12_u8,
            (prop::option::weighted(0.9, 0..3_usize), 0..3_u32),
            0..12,
        ),
        uses in prop::collection::vec(prop::collection::vec((name(), any::<bool>()), 1..4), 1..20),
    ) {
        let choices: BTreeMap<u8, Choice> = choices
            .into_iter()
            .map(|(number, (node, weight))| (number, (number, node, false, weight)))
            .collect();
        let catalog = Mutex::new(Catalog::default());
        let change = Changes::default().of(routed(&choices).into(), &catalog);
        let mut catalog = catalog.into_inner().unwrap();
        catalog.apply(change);
        let own: Arc<Own> = catalog.own(&NodeName::parse("a").unwrap());
        let mut named = BTreeSet::new();
        let mut scope = found(&catalog, &own, &named);
        for names in uses {
            let mut touched = Touched::NONE;
            for ((kind, name), is_used) in names {
                touched.add(kind, [&name].into_iter());
                match is_used {
                    true => named.insert((kind, name)),
                    false => named.remove(&(kind, name)),
                };
            }
            let Touched::These(touched) = touched else {
                panic!("there are few");
            };
            let before = content(&scope);
            let touched = touched.iter();
            let touched = touched.map(|key| (key.0, &key.1, named.contains(key)));
            let anew = found(&catalog, &own, &named);
            match scope.follow(&catalog, touched) {
                Some(added) => {
                    prop_assert_eq!(content(&scope), content(&anew));
                    let new = |of: &Name| !before.1.contains(of) && !before.3.contains(of);
                    prop_assert!(added.services.iter().chain(&added.nodes).all(new));
                    let more = scope.services.len() + scope.nodes.len();
                    let fewer = before.1.iter().filter(|one| !scope.services.contains(*one));
                    let same = before.1.len() + before.3.len() - fewer.count();
                    prop_assert_eq!(added.services.len() + added.nodes.len(), more - same);
                }
                None => {
                    prop_assert_eq!(content(&scope), before, "it stays as it was");
                    scope = anew;
                }
            }
        }
    }
}

#[test]
fn many_names_are_not_kept_apart() {
    let mut touched = Touched::NONE;
    assert!(touched.is_empty());
    let names: Vec<Name> = (0..=super::MAX_TOUCHED)
        .map(|number| number.to_string().into())
        .collect();
    touched.add(Type::Service, names.iter());
    assert!(matches!(touched, Touched::All) && !touched.is_empty());
}
