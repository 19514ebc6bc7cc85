use heddle_compile::registered::ProviderKey;
use heddle_model::report::Origin;
use proptest::prelude::*;

use super::*;

fn held(key: u8, created: i64) -> Held {
    let entry = Entry {
        origin: Origin::etcd("key"),
        key: ProviderKey::new("shop", "cart", &format!("p{key}")).expect("a key"),
        value: Vec::new(),
        created,
    };
    Held {
        good: Some((Arc::new(entry), 0)),
        ..Held::default()
    }
}

/// What becomes of a key.
#[derive(Debug, Clone, Copy)]
enum Edit {
    Put(u8, i64),
    Spoil(u8),
    Remove(u8),
    RemoveUntil(u8),
}

fn edit() -> impl Strategy<Value = Edit> {
    let key = 0..60_u8;
    prop_oneof![
        6 => (key.clone(), 0..1_000_i64).prop_map(|(key, created)| Edit::Put(key, created)),
        1 => key.clone().prop_map(Edit::Spoil),
        3 => key.clone().prop_map(Edit::Remove),
        1 => key.prop_map(Edit::RemoveUntil),
    ]
}

proptest! {
    #[test]
    fn pages_have_what_a_list_of_all_would_have(
        rounds in prop::collection::vec(prop::collection::vec(edit(), 0..12), 1..20),
    ) {
        let (mut pages, mut all) = (Pages::default(), BTreeMap::new());
        for round in rounds {
            let mut gone = Vec::new();
            for edit in round {
                match edit {
                    Edit::Put(key, created) => drop(all.insert(vec![key], held(key, created))),
                    Edit::Spoil(key) => drop(all.insert(vec![key], Held::default())),
                    Edit::Remove(key) => drop(all.remove(&vec![key])),
                    Edit::RemoveUntil(key) => {
                        gone.extend(all.keys().filter(|one| one[0] <= key).cloned());
                        all.retain(|one, _| one[0] > key);
                    }
                }
                let (Edit::Put(key, _) | Edit::Spoil(key) | Edit::Remove(key) | Edit::RemoveUntil(key)) = edit;
                pages.changed(&[key]);
                gone.iter().for_each(|key| pages.changed(key));
            }
            let (entries, _) = pages.refresh(&all);
            let listed = || all.values().filter_map(|held| Some(&held.good.as_ref()?.0));
            prop_assert!(entries.iter().eq(listed()));
            prop_assert_eq!(entries.len(), listed().count());
            prop_assert!(pages.pages.values().all(|page| page.len() < 2 * ENTRIES));
            let empty = pages.pages.values().filter(|page| page.is_empty()).count();
            prop_assert!(empty <= 1, "{} empty pages", empty);
        }
    }
}

#[test]
fn what_has_not_changed_is_shared() {
    let mut all: BTreeMap<Vec<u8>, Held> = (0..40).map(|key| (vec![key], held(key, 1))).collect();
    let mut pages = Pages::default();
    let _all = pages.refresh(&all);
    let before = pages.pages.clone();
    all.insert(vec![17], held(17, 2));
    pages.changed(&[17]);
    let (_, changed) = pages.refresh(&all);
    assert_eq!(changed, BTreeSet::from([vec![17]]));
    let is_other = |(begin, page): &(&Vec<u8>, &EntryPage)| !Arc::ptr_eq(page, &before[*begin]);
    assert_eq!(pages.pages.iter().filter(is_other).count(), 1);
}
