//! For any registry content: each accepted entry was written under its own key with a lease, is valid on its own, and
//! is also in a list of the same store; and the problems reported for the other entries can be displayed on a terminal.
//!
//! A line of the input is a change: `+` writes with a lease, `=` writes without one, `-` removes. The key follows up to
//! a space, and gets the providers' prefix unless it begins with a slash; then comes the value.

use std::collections::BTreeMap;

use heddle_compile::registered::{Layout, Providers, judge};
use heddle_model::report::{Origin, Severity};
use heddle_registry::fuzzing::View;

/// The content of a store: key to value and lease.
type Store = BTreeMap<Vec<u8>, (Vec<u8>, i64)>;

/// Checks one input.
pub fn check(data: &[u8]) {
    let layout = Layout::default();
    let mut view = View::listed(&[]);
    let mut store = Store::new();
    let mut taken = view.providers().expect("an empty store is known");
    for line in data.split(|&byte| byte == b'\n') {
        let Some((&how, rest)) = line.split_first() else {
            continue;
        };
        let mut parts = rest.splitn(2, |&byte| byte == b' ');
        let (name, value) = (
            parts.next().unwrap_or_default(),
            parts.next().unwrap_or_default(),
        );
        let key = match name.first() {
            Some(b'/') => name.to_vec(),
            _ => [layout.providers().as_bytes(), name].concat(),
        };
        let lease = match how {
            b'-' => {
                store.remove(&key);
                view.hears(&key, None);
                None
            }
            b'=' => Some(0),
            _ => Some(1),
        };
        if let Some(lease) = lease {
            view.hears(&key, Some((value, lease)));
            store.insert(key, (value.to_vec(), lease));
        }
        if let Some(providers) = view.providers() {
            taken = providers;
        }
        is_right(&layout, &store, &taken);
    }
    let written: Vec<_> = store
        .iter()
        .map(|(key, (value, lease))| (key.clone(), value.clone(), *lease))
        .collect();
    let listed = View::listed(&written).providers().expect("it is known");
    is_right(&layout, &store, &listed);
    let right = store
        .iter()
        .filter(|(key, (value, lease))| is_good(&layout, key, value, *lease));
    assert_eq!(listed.count(), right.count(), "a list is what is right");
}

/// Whether a key, its value and its lease are valid, each checked separately.
fn is_good(layout: &Layout, key: &[u8], value: &[u8], lease: i64) -> bool {
    let origin = Origin::etcd("a key");
    let known = layout.provider(key);
    lease != 0 && known.is_ok_and(|key| judge(&origin, &key, value).is_ok())
}

fn is_right(layout: &Layout, store: &Store, taken: &Providers) {
    let mut entries = BTreeMap::new();
    for entry in taken.entries.iter() {
        let key = layout.key(&entry.key).into_bytes();
        assert_eq!(layout.provider(&key).as_ref(), Ok(&entry.key));
        assert!(store.contains_key(&key), "it stands there");
        assert!(
            is_good(layout, &key, &entry.value, 1),
            "it is right for itself"
        );
        assert!(
            entries.insert(key, &entry.value).is_none(),
            "one entry a key"
        );
    }
    for (key, (value, lease)) in store {
        if is_good(layout, key, value, *lease) {
            assert_eq!(entries.get(key), Some(&value), "what is right is taken");
        }
    }
    for problem in &taken.problems {
        assert_eq!(
            problem.severity,
            Severity::Warning,
            "it never stops a folder"
        );
        assert!(!problem.reason.is_empty());
        let said = problem.to_string();
        let is_harmless = |character: char| character == '\t' || !character.is_control();
        assert!(said.chars().all(is_harmless), "{said:?}");
    }
    let wrong = |key: &&Vec<u8>| !entries.contains_key(*key);
    let wrong = store.keys().filter(wrong).count();
    assert!(
        taken.problems.len() >= wrong.min(100),
        "each is said to be wrong"
    );
}
