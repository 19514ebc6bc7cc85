use heddle_model::report::Origin;
use proptest::prelude::*;

use super::*;

/// Entries by the number in their key, with what tells one value from another.
type Numbered = std::collections::BTreeMap<u8, i64>;

fn entry((key, created): (&u8, &i64)) -> Arc<Entry> {
    Arc::new(Entry {
        origin: Origin::etcd("key"),
        // Numbers of two digits are in the order of their texts.
        key: ProviderKey::new("shop", "cart", &format!("p{key:02}")).expect("a key"),
        value: Vec::new(),
        created: *created,
    })
}

/// Pages that begin at these numbers, each the same one as in `before` if it has the same entries.
fn paged(all: &Numbered, begins: &[u8], before: Option<&Entries>) -> Entries {
    let mut pages: Vec<Vec<Arc<Entry>>> = vec![Vec::new()];
    for (key, created) in all {
        if begins.contains(key) {
            pages.push(Vec::new());
        }
        pages
            .last_mut()
            .expect("a page")
            .push(entry((key, created)));
    }
    let shared = |page: Vec<Arc<Entry>>| {
        let known = before.into_iter().flat_map(|before| before.pages.iter());
        let same = known.into_iter().find(|one| one[..] == page[..]);
        same.cloned().unwrap_or_else(|| page.into())
    };
    Entries::new(pages.into_iter().map(shared))
}

proptest! {
    #[test]
    fn pages_differ_where_lists_do(
        before in prop::collection::btree_map(0..40_u8, 0..3_i64, 0..40),
        edits in prop::collection::vec((0..40_u8, prop::option::of(0..3_i64)), 0..6),
        begins in [prop::collection::vec(0..40_u8, 0..8), prop::collection::vec(0..40_u8, 0..2)],
    ) {
        let mut now = before.clone();
        for (key, value) in edits {
            match value {
                Some(value) => drop(now.insert(key, value)),
                None => drop(now.remove(&key)),
            }
        }
        // The second state divides some pages.
        let [first, more] = begins;
        let old = paged(&before, &first, None);
        let new = paged(&now, &[first, more].concat(), Some(&old));
        let found = old.differences(&new).into_iter();
        let found: Vec<_> = found
            .map(|(old, new)| (old.map(|one| one.created), new.map(|one| one.created)))
            .collect();
        let keys: std::collections::BTreeSet<u8> = before.keys().chain(now.keys()).copied().collect();
        let expected = keys.iter().map(|key| (before.get(key).copied(), now.get(key).copied()));
        let expected: Vec<_> = expected.filter(|(old, new)| old != new).collect();
        prop_assert_eq!(found, expected);
        prop_assert_eq!(new.len(), now.len());
    }
}
