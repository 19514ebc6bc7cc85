//! A quick reader for what programs write: JSON on one line.
//!
//! YAML has all of JSON, and its parser reads each text in the same way; but it notes where each value is, which takes
//! time, and a registry has many values. What may mean something else in YAML, and everything that is wrong, is left to
//! that parser: no text is refused here.

use std::collections::BTreeSet;
use std::fmt;

use serde::de::{Deserialize, Deserializer, Error, MapAccess, SeqAccess, Visitor};

use super::node::{MappingEntry, Node, Plain, Value};

#[cfg(test)]
mod tests;

/// Limit of lists and mappings, below the levels that both parsers take.
const MAX_LEVELS: usize = 32;
/// The line of everything.
const LINE: u32 = 1;

/// Reads a text of one object with at most so many values; `None` if the parser of YAML has to read it.
pub(super) fn parse(bytes: &[u8], most_values: usize) -> Option<Node> {
    let text = std::str::from_utf8(bytes).ok()?;
    // One begins at each of these characters, except where there is none.
    let begins = text
        .bytes()
        .filter(|byte| matches!(byte, b'{' | b'[' | b',' | b':'));
    if begins.count() >= most_values {
        return None;
    }
    let is_plain = |byte: u8| (b' '..=b'~').contains(&byte) && byte != b'\\';
    let levels = text.bytes().filter(|byte| matches!(byte, b'{' | b'['));
    if !text.starts_with('{') || !text.bytes().all(is_plain) || levels.count() > MAX_LEVELS {
        return None;
    }
    serde_json::from_str(text).ok().map(|Tree(node)| node)
}

struct Tree(Node);

impl<'de> Deserialize<'de> for Tree {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let value = deserializer.deserialize_any(TreeVisitor)?;
        Ok(Tree(Node { line: LINE, value }))
    }
}

struct TreeVisitor;

impl<'de> Visitor<'de> for TreeVisitor {
    type Value = Value;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a value")
    }

    fn visit_unit<E>(self) -> Result<Value, E> {
        Ok(Value::Null)
    }

    fn visit_bool<E>(self, value: bool) -> Result<Value, E> {
        Ok(Value::Plain(Plain::Bool(value), value.to_string()))
    }

    fn visit_i64<E>(self, value: i64) -> Result<Value, E> {
        Ok(Value::Plain(Plain::Integer(value), value.to_string()))
    }

    fn visit_u64<E: Error>(self, value: u64) -> Result<Value, E> {
        let value = i64::try_from(value).map_err(|_| E::custom("a large number"))?;
        self.visit_i64(value)
    }

    fn visit_str<E>(self, value: &str) -> Result<Value, E> {
        Ok(Value::Text(value.to_owned()))
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut access: A) -> Result<Value, A::Error> {
        let mut items = Vec::new();
        while let Some(Tree(item)) = access.next_element()? {
            items.push(item);
        }
        items.shrink_to_fit();
        Ok(Value::Sequence(items))
    }

    fn visit_map<A: MapAccess<'de>>(self, mut access: A) -> Result<Value, A::Error> {
        let mut entries = Vec::new();
        let mut keys = BTreeSet::new();
        while let Some((key, Tree(value))) = access.next_entry::<String, Tree>()? {
            if !keys.insert(key.clone()) {
                return Err(A::Error::custom("a key that is there twice"));
            }
            let line = LINE;
            entries.push(MappingEntry { key, line, value });
        }
        // Most have one or two, and a registry has very many mappings.
        entries.shrink_to_fit();
        Ok(Value::Mapping(entries))
    }
}
