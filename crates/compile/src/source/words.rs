//! What a text that is no YAML may be about, by the words in it.

use std::collections::BTreeSet;

use heddle_model::Namespace;

/// Words that policies have, and objects that set a mode.
const CLOSING: [&str; 4] = [
    "AuthorizationPolicy",
    "TrafficTarget",
    "targetRefs",
    "heddle.dev/mode",
];
/// The namespace of objects that name none.
const DEFAULT: &str = "default";

/// How many objects that protect something the text may have.
pub(super) fn closing_words(bytes: &[u8]) -> usize {
    let text = plain(bytes);
    let count = |word: &&str| text.matches(*word).count();
    CLOSING.iter().map(count).sum()
}

/// Those of the namespaces that occur in the text, and `default`; all of them if none does.
pub(super) fn namespaces_in(bytes: &[u8], known: &BTreeSet<Namespace>) -> BTreeSet<Namespace> {
    let text = plain(bytes);
    let words = text.split(|c: char| !(c.is_ascii_alphanumeric() || c == '-'));
    let words: BTreeSet<&str> = words.collect();
    let is_named = |namespace: &&Namespace| words.contains(namespace.as_str());
    let mut named: BTreeSet<Namespace> = known.iter().filter(is_named).cloned().collect();
    if named.is_empty() {
        named.clone_from(known);
    }
    named.extend(Namespace::parse(DEFAULT).ok());
    named
}

/// The text, also of a file that was saved as UTF-16.
fn plain(bytes: &[u8]) -> String {
    let bytes: Vec<u8> = bytes.iter().copied().filter(|byte| *byte != 0).collect();
    String::from_utf8_lossy(&bytes).into_owned()
}
