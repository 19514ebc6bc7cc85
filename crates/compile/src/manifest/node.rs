//! Documents as trees that remember their lines.
//!
//! Every later stage names a field by its path; the tree turns the path into a line. So lines are looked up only for
//! problems, and typed structs have no positions.

use std::fmt;

use serde::{Serialize, Serializer};
use serde_json::Value as Json;

/// A value and the line on which it is written (or, for a YAML alias, used).
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Node {
    pub(crate) line: u32,
    pub(crate) value: Value,
}

/// The data model common to YAML and JSON; a manifest may use nothing beyond it.
#[derive(Debug, Clone, PartialEq)]
pub(crate) enum Value {
    Null,
    /// A plain scalar that is not a string, with the text as written: `yes`, `1.20`.
    Plain(Plain, String),
    Text(String),
    Sequence(Vec<Node>),
    Mapping(Vec<MappingEntry>),
}

/// The meaning of a plain scalar.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) enum Plain {
    Bool(bool),
    Integer(i64),
    Float(f64),
}

#[derive(Debug, Clone, PartialEq)]
pub(crate) struct MappingEntry {
    pub(crate) key: String,
    pub(crate) line: u32,
    pub(crate) value: Node,
}

impl Node {
    /// The same value, every part of it on this line.
    pub(crate) fn from_json(json: Json, line: u32) -> Self {
        let value = match json {
            Json::Null => Value::Null,
            Json::Bool(value) => Value::Plain(Plain::Bool(value), value.to_string()),
            Json::Number(number) => {
                let plain = match (number.as_i64(), number.as_f64()) {
                    (Some(value), _) => Plain::Integer(value),
                    (None, value) => Plain::Float(value.unwrap_or(f64::MAX)),
                };
                Value::Plain(plain, number.to_string())
            }
            Json::String(text) => Value::Text(text),
            Json::Array(items) => {
                let items = items.into_iter();
                Value::Sequence(items.map(|item| Node::from_json(item, line)).collect())
            }
            Json::Object(entries) => {
                let entries = entries.into_iter().map(|(key, value)| MappingEntry {
                    key,
                    line,
                    value: Node::from_json(value, line),
                });
                Value::Mapping(entries.collect())
            }
        };
        Node { line, value }
    }

    /// Whether both have the same content, wherever they are written.
    pub(crate) fn has_content_of(&self, other: &Node) -> bool {
        match (&self.value, &other.value) {
            (Value::Sequence(ones), Value::Sequence(others)) => {
                let mut pairs = ones.iter().zip(others);
                ones.len() == others.len() && pairs.all(|(one, other)| one.has_content_of(other))
            }
            (Value::Mapping(ones), Value::Mapping(others)) => {
                let mut entries = ones.iter();
                let in_others = |entry: &MappingEntry| other.get(&entry.key);
                ones.len() == others.len()
                    && entries.all(|one| {
                        in_others(one).is_some_and(|other| one.value.has_content_of(other))
                    })
            }
            (one, other) => one == other,
        }
    }

    pub(crate) fn get(&self, key: &str) -> Option<&Node> {
        match &self.value {
            Value::Mapping(entries) => entries
                .iter()
                .find(|entry| entry.key == key)
                .map(|entry| &entry.value),
            _ => None,
        }
    }

    /// The number of values, including this one.
    pub(crate) fn count(&self) -> usize {
        1 + match &self.value {
            Value::Sequence(items) => items.iter().map(Node::count).sum(),
            Value::Mapping(entries) => entries.iter().map(|entry| entry.value.count()).sum(),
            _ => 0,
        }
    }

    /// Adds the paths of all null fields within.
    pub(crate) fn blank_fields(&self, path: &FieldPath, found: &mut Vec<FieldPath>) {
        match &self.value {
            Value::Null => found.push(path.clone()),
            Value::Mapping(entries) => {
                for entry in entries {
                    entry.value.blank_fields(&path.field(&entry.key), found);
                }
            }
            Value::Sequence(items) => {
                for (index, item) in items.iter().enumerate() {
                    item.blank_fields(&path.index(index), found);
                }
            }
            Value::Plain(..) | Value::Text(_) => {}
        }
    }

    /// The value of the field at `path`.
    pub(crate) fn at(&self, path: &FieldPath) -> Option<&Node> {
        path.0.iter().try_fold(self, |node, step| match step {
            Step::Field(name) => node.get(name),
            Step::Index(index) => match &node.value {
                Value::Sequence(items) => items.get(*index),
                _ => None,
            },
        })
    }

    pub(crate) fn text(&self) -> Option<&str> {
        match &self.value {
            Value::Text(text) => Some(text),
            _ => None,
        }
    }

    /// The line of a field's key. If the path leads beyond the document, the line of its last existing step.
    pub(crate) fn line_of(&self, path: &FieldPath) -> u32 {
        let mut node = self;
        let mut line = self.line;
        for step in &path.0 {
            match (step, &node.value) {
                (Step::Field(name), Value::Mapping(entries)) => {
                    let Some(entry) = entries.iter().find(|entry| entry.key == *name) else {
                        return line;
                    };
                    (node, line) = (&entry.value, entry.line);
                }
                (Step::Index(index), Value::Sequence(items)) => {
                    let Some(item) = items.get(*index) else {
                        return line;
                    };
                    (node, line) = (item, item.line);
                }
                _ => return line,
            }
        }
        line
    }

    /// Describes the value in a message: `the number 1.20`.
    pub(crate) fn describe(&self) -> String {
        match &self.value {
            Value::Null => "nothing".to_owned(),
            Value::Plain(Plain::Bool(_), raw) => format!("the boolean {}", short(raw)),
            Value::Plain(_, raw) => format!("the number {}", short(raw)),
            Value::Text(text) => format!("the string {:?}", short(text)),
            Value::Sequence(_) => "a list".to_owned(),
            Value::Mapping(_) => "a mapping".to_owned(),
        }
    }
}

/// A text cut to a length that suits a message.
fn short(text: &str) -> String {
    const LONGEST: usize = 60;
    if text.chars().count() <= LONGEST {
        return text.to_owned();
    }
    text.chars().take(LONGEST).chain("…".chars()).collect()
}

/// As JSON or YAML that is read as the same value.
impl Serialize for Node {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        match &self.value {
            Value::Null => serializer.serialize_unit(),
            Value::Plain(Plain::Bool(value), _) => serializer.serialize_bool(*value),
            Value::Plain(Plain::Integer(value), _) => serializer.serialize_i64(*value),
            Value::Plain(Plain::Float(value), _) => serializer.serialize_f64(*value),
            Value::Text(text) => serializer.serialize_str(text),
            Value::Sequence(items) => serializer.collect_seq(items),
            Value::Mapping(entries) => {
                serializer.collect_map(entries.iter().map(|entry| (&entry.key, &entry.value)))
            }
        }
    }
}

/// The path of a field: `spec.rules[0].matches`.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct FieldPath(Vec<Step>);

#[derive(Debug, Clone, PartialEq, Eq)]
enum Step {
    Field(String),
    Index(usize),
}

impl FieldPath {
    /// Parses field names joined by dots, as in `spec.ports`.
    pub(crate) fn of(dotted: &str) -> Self {
        Self(
            dotted
                .split('.')
                .filter(|s| !s.is_empty())
                .map(|s| Step::Field(s.into()))
                .collect(),
        )
    }

    pub(crate) fn field(&self, name: &str) -> Self {
        self.with(Step::Field(name.to_owned()))
    }

    pub(crate) fn index(&self, index: usize) -> Self {
        self.with(Step::Index(index))
    }

    /// Whether it is the field `other` or one inside it.
    pub(crate) fn is_within(&self, other: &FieldPath) -> bool {
        self.0.starts_with(&other.0)
    }

    /// The name of the field itself, without list indices.
    pub(crate) fn last_field(&self) -> Option<&str> {
        self.fields().next()
    }

    /// The name of the enclosing field.
    pub(crate) fn parent_field(&self) -> Option<&str> {
        self.fields().nth(1)
    }

    /// Field names, innermost first.
    fn fields(&self) -> impl Iterator<Item = &str> {
        self.0.iter().rev().filter_map(|step| match step {
            Step::Field(name) => Some(name.as_str()),
            Step::Index(_) => None,
        })
    }

    fn with(&self, step: Step) -> Self {
        let mut steps = Vec::with_capacity(self.0.len() + 1);
        steps.extend_from_slice(&self.0);
        steps.push(step);
        Self(steps)
    }
}

impl fmt::Display for FieldPath {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (position, step) in self.0.iter().enumerate() {
            match step {
                Step::Index(index) => write!(f, "[{index}]")?,
                Step::Field(name) if name.contains(['.', '/', ' ', '[']) => {
                    write!(f, "[{}]", short(name))?;
                }
                Step::Field(name) if position == 0 => f.write_str(&short(name))?,
                Step::Field(name) => write!(f, ".{}", short(name))?,
            }
        }
        Ok(())
    }
}
