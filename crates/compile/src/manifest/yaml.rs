//! Parses text into trees. JSON is a subset of YAML 1.2, so one parser serves both.
//!
//! The document is parsed without a schema, and scalars have the meaning that `kubectl` gives them: a plain `yes` or
//! `on` is a boolean, a plain `1.20` a number. Where a string is expected, that is an error whose remedy is to quote
//! it; nothing is guessed. Duplicate keys are refused. Aliases are expanded within a budget, so that a small file
//! cannot become a large tree.

use std::fmt;

use serde::de::{Deserialize, Deserializer, MapAccess, SeqAccess, Visitor};
use serde_saphyr::{Error, Location, Spanned};

use super::node::{MappingEntry, Node, Plain, Value};

/// Limit of documents in one file.
pub(super) const MAX_DOCUMENTS: usize = 10_000;
/// Limit of values in one file, each alias counted at every use.
const MAX_NODES: usize = 400_000;
/// Limit of nested lists and mappings.
const MAX_DEPTH: usize = 48;
/// Stack of the thread that parses a text which may have more levels: beyond the limit the parser recurses some way
/// before it refuses the text, which takes up to the 2 MiB that other threads have. Only what is used becomes memory.
const DEEP_STACK_BYTES: usize = 64 * 1024 * 1024;
/// Limit of events replayed for aliases in one document.
const MAX_REPLAYED: usize = 50_000;

/// Why a text is not a sequence of YAML documents.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct SyntaxError {
    pub(crate) line: Option<u32>,
    pub(crate) reason: String,
    pub(crate) remedy: String,
}

/// Parses every document of a file, without the empty ones, and subtracts the number of values from `values_left`, the
/// folder's remaining budget.
pub(crate) fn parse(bytes: &[u8], values_left: &mut usize) -> Result<Vec<Node>, SyntaxError> {
    let text = std::str::from_utf8(bytes).map_err(|error| SyntaxError {
        line: Some(line_of_byte(bytes, error.valid_up_to())),
        reason: "this is not UTF-8 text".to_owned(),
        remedy: "save the file as UTF-8".to_owned(),
    })?;
    if most_levels(bytes) <= MAX_DEPTH {
        return parse_text(text, values_left);
    }
    std::thread::scope(|scope| {
        let deep = std::thread::Builder::new().stack_size(DEEP_STACK_BYTES);
        let parsing = deep.spawn_scoped(scope, || parse_text(text, values_left));
        let parsing = parsing.map_err(|error| SyntaxError {
            line: None,
            reason: format!("it is nested deeply, and there is no thread to read it: {error}"),
            remedy: "nest it less deeply".to_owned(),
        })?;
        parsing
            .join()
            .unwrap_or_else(|panic| std::panic::resume_unwind(panic))
    })
}

/// An upper bound of the levels of a text: each begins with one of these characters.
fn most_levels(bytes: &[u8]) -> usize {
    let begins = bytes.iter().filter(|byte| b"{[-?:".contains(byte));
    begins.count()
}

fn parse_text(text: &str, values_left: &mut usize) -> Result<Vec<Node>, SyntaxError> {
    let options = serde_saphyr::options! {
        budget: serde_saphyr::budget! {
            max_documents: MAX_DOCUMENTS,
            max_nodes: MAX_NODES.min(*values_left),
            max_events: 4 * MAX_NODES,
            max_depth: MAX_DEPTH,
            max_aliases: 1_000,
            max_anchors: 1_000,
        },
        alias_limits: serde_saphyr::alias_limits! {
            max_total_replayed_events: MAX_REPLAYED,
            max_replay_stack_depth: 8,
        },
        non_finite_float_policy: serde_saphyr::NonFiniteFloatPolicy::PassThrough,
        with_snippet: false,
    };
    let documents = serde_saphyr::from_multiple_with_options::<Spanned<Raw>>(text, options)
        .map_err(|error| explain(&error))?;
    let documents: Vec<Node> = documents
        .into_iter()
        .map(|document| convert(document, text))
        .collect();
    let values: usize = documents.iter().map(Node::count).sum();
    *values_left = values_left.saturating_sub(values);
    Ok(documents)
}

fn line_of_byte(bytes: &[u8], offset: usize) -> u32 {
    let before = bytes.get(..offset).unwrap_or(bytes);
    let newlines = before.iter().filter(|byte| **byte == b'\n').count();
    u32::try_from(newlines + 1).unwrap_or(u32::MAX)
}

fn line(location: &Location) -> u32 {
    u32::try_from(location.line()).unwrap_or(u32::MAX)
}

/// A value from the YAML library, before its source text is looked up.
enum Raw {
    Null,
    Plain(Plain),
    Text(String),
    Sequence(Vec<Spanned<Raw>>),
    Mapping(Vec<(Spanned<String>, Spanned<Raw>)>),
}

fn convert(raw: Spanned<Raw>, text: &str) -> Node {
    let value = match raw.value {
        Raw::Null => Value::Null,
        Raw::Text(string) => Value::Text(string),
        Raw::Plain(plain) => Value::Plain(plain, source(&raw.defined, text, plain)),
        Raw::Sequence(items) => Value::Sequence(exact(items, |item| convert(item, text))),
        Raw::Mapping(entries) => Value::Mapping(exact(entries, |(key, value)| MappingEntry {
            line: line(&key.referenced),
            key: key.value,
            value: convert(value, text),
        })),
    };
    Node {
        line: line(&raw.referenced),
        value,
    }
}

/// A list of its own, without room to spare: trees live as long as their objects. `collect` would go on with the list of the
/// parser, whose larger items leave most of it unused.
fn exact<T, U>(items: Vec<T>, map: impl FnMut(T) -> U) -> Vec<U> {
    let mut mapped = Vec::with_capacity(items.len());
    mapped.extend(items.into_iter().map(map));
    mapped
}

/// The scalar as it is written, for messages that quote it.
fn source(location: &Location, text: &str, plain: Plain) -> String {
    let span = location.span();
    let slice = span
        .byte_offset()
        .zip(span.byte_len())
        .and_then(|(start, length)| {
            let start = usize::try_from(start).ok()?;
            let end = start.checked_add(usize::try_from(length).ok()?)?;
            text.get(start..end)
        });
    match (slice, plain) {
        (Some(slice), _) => slice.to_owned(),
        (None, Plain::Bool(value)) => value.to_string(),
        (None, Plain::Integer(value)) => value.to_string(),
        (None, Plain::Float(value)) => value.to_string(),
    }
}

impl<'de> Deserialize<'de> for Raw {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(RawVisitor)
    }
}

struct RawVisitor;

impl<'de> Visitor<'de> for RawVisitor {
    type Value = Raw;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a value")
    }

    fn visit_unit<E>(self) -> Result<Raw, E> {
        Ok(Raw::Null)
    }

    fn visit_none<E>(self) -> Result<Raw, E> {
        Ok(Raw::Null)
    }

    fn visit_some<D: Deserializer<'de>>(self, deserializer: D) -> Result<Raw, D::Error> {
        deserializer.deserialize_any(self)
    }

    fn visit_bool<E>(self, value: bool) -> Result<Raw, E> {
        Ok(Raw::Plain(Plain::Bool(value)))
    }

    fn visit_i64<E>(self, value: i64) -> Result<Raw, E> {
        Ok(Raw::Plain(Plain::Integer(value)))
    }

    fn visit_u64<E>(self, value: u64) -> Result<Raw, E> {
        Ok(Raw::Plain(
            i64::try_from(value).map_or(Plain::Float(f64::MAX), Plain::Integer),
        ))
    }

    fn visit_f64<E>(self, value: f64) -> Result<Raw, E> {
        Ok(Raw::Plain(Plain::Float(value)))
    }

    fn visit_str<E>(self, value: &str) -> Result<Raw, E> {
        Ok(Raw::Text(value.to_owned()))
    }

    fn visit_string<E>(self, value: String) -> Result<Raw, E> {
        Ok(Raw::Text(value))
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut access: A) -> Result<Raw, A::Error> {
        let mut items = Vec::new();
        while let Some(item) = access.next_element()? {
            items.push(item);
        }
        Ok(Raw::Sequence(items))
    }

    fn visit_map<A: MapAccess<'de>>(self, mut access: A) -> Result<Raw, A::Error> {
        let mut entries = Vec::new();
        while let Some(entry) = access.next_entry()? {
            entries.push(entry);
        }
        Ok(Raw::Mapping(entries))
    }
}

fn explain(error: &Error) -> SyntaxError {
    let (reason, remedy) = match error {
        Error::AliasError { error, .. } => {
            let inner = explain(error);
            (inner.reason, inner.remedy)
        }
        Error::DuplicateMappingKey { key, .. } => (
            match key {
                Some(key) => format!("the key {key:?} is written twice in one mapping"),
                None => "a key is written twice in one mapping".to_owned(),
            },
            match key.as_deref() {
                // Fields that every object has once, at its top.
                Some("apiVersion" | "kind" | "metadata" | "spec")
                    if error.location().is_none_or(|at| at.column() <= 1) =>
                {
                    "keep one of the two, or put --- between two objects".to_owned()
                }
                _ => "keep one of the two".to_owned(),
            },
        ),
        Error::Budget { .. }
        | Error::AliasReplayLimitExceeded { .. }
        | Error::AliasReplayStackDepthExceeded { .. }
        | Error::AliasExpansionLimitExceeded { .. }
        | Error::AliasReplayCounterOverflow { .. } => (
            "the file holds too many values, too deeply nested, or aliases that expand too much"
                .to_owned(),
            "split the file, or write out what the aliases stand for".to_owned(),
        ),
        Error::RecursiveReferencesRequireWeakTypes { .. } => (
            "an alias contains itself".to_owned(),
            "write out what it stands for".to_owned(),
        ),
        Error::UnknownAnchor { .. } => (
            "an alias refers to an anchor that is not defined above it".to_owned(),
            "define the anchor first, or quote a text that starts with '*'".to_owned(),
        ),
        other => (
            format!("this is not YAML: {}", without_location(&other.to_string())),
            "look at the indentation, quotes and brackets around this line".to_owned(),
        ),
    };
    SyntaxError {
        line: error.location().map(|location| line(&location)),
        reason,
        remedy,
    }
}

/// Strips the place from the library's message; a problem has a field for it.
fn without_location(message: &str) -> &str {
    message.split(" at line ").next().unwrap_or(message)
}
