//! Tests of lists in pages.

use std::collections::BTreeMap;

use proptest::prelude::*;

use super::{IN_PAGE, Pages};
use crate::differences;

type Item = (u8, u8);

fn by_key(key: u8) -> impl Fn(&Item) -> std::cmp::Ordering {
    move |one| one.0.cmp(&key)
}

fn put(pages: &mut Pages<Item>, item: Item) -> Option<Item> {
    pages.put(item, |one, other| one.0.cmp(&other.0))
}

/// Puts an item, or removes a key.
fn step() -> impl Strategy<Value = (u8, Option<u8>)> {
    (0..60u8, prop::option::weighted(0.6, any::<u8>()))
}

proptest! {
    #[test]
    fn it_is_a_sorted_map_and_its_clones_do_not_change(
        first in prop::collection::btree_map(0..60u8, any::<u8>(), 0..60),
        steps in prop::collection::vec(step(), 0..80),
    ) {
        let mut model: BTreeMap<u8, u8> = first;
        let mut pages: Pages<Item> = model.iter().map(|(key, value)| (*key, *value)).collect();
        let (before, known) = (pages.clone(), model.clone());
        for (key, value) in steps {
            let (was, had) = match value {
                Some(value) => (put(&mut pages, (key, value)), model.insert(key, value)),
                None => (pages.remove(by_key(key)), model.remove(&key)),
            };
            prop_assert_eq!(was.map(|one| one.1), had);
            prop_assert_eq!(pages.find(by_key(key)).map(|one| one.1), model.get(&key).copied());
            prop_assert_eq!(pages.len(), model.len());
            for page in pages.pages.iter() {
                prop_assert!((1..2 * IN_PAGE).contains(&page.len()));
            }
        }
        let items = |of: &BTreeMap<u8, u8>| of.iter().map(|(key, value)| (*key, *value)).collect::<Vec<_>>();
        let now = items(&model);
        prop_assert!(pages.iter().eq(&now));
        prop_assert_eq!(&pages, &Pages::from(now.clone()), "however it is divided");
        for (place, item) in now.iter().enumerate() {
            prop_assert_eq!(&pages[place], item);
        }
        let known = items(&known);
        prop_assert!(before.iter().eq(&known));

        // What only one of the two has differs as the two do.
        let order = |one: &Item, other: &Item| one.0.cmp(&other.0);
        let (was, is): (Vec<Item>, Vec<Item>) =
            (before.apart(&pages).copied().collect(), pages.apart(&before).copied().collect());
        let found = differences(&was, &is, order, Item::eq);
        prop_assert_eq!(found, differences(&known, &now, order, Item::eq));
    }
}

#[test]
fn a_change_copies_its_page_alone() {
    let mut pages: Pages<Item> = (0..40).map(|key| (key, 0)).collect();
    let before = pages.clone();
    assert_eq!(pages.apart(&before).count(), 0);
    put(&mut pages, (17, 1));
    assert_eq!(pages.apart(&before).count(), IN_PAGE);
    assert_eq!(before.apart(&pages).count(), IN_PAGE);
    pages[3] = (3, 1);
    assert_eq!(pages.apart(&before).count(), 2 * IN_PAGE);
    assert_eq!((before[3], before[17]), ((3, 0), (17, 0)));
}

#[test]
fn its_json_is_that_of_a_list() {
    let pages: Pages<u8> = (0..10).collect();
    let text = serde_json::to_string(&pages).unwrap();
    assert_eq!(text, "[0,1,2,3,4,5,6,7,8,9]");
    assert_eq!(serde_json::from_str::<Pages<u8>>(&text).unwrap(), pages);
    assert_eq!(format!("{pages:?}"), "[0, 1, 2, 3, 4, 5, 6, 7, 8, 9]");
}
