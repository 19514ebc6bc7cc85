//! Trees to typed structs, strictly.
//!
//! A serde deserializer over [`Node`] that knows where it is. It differs from a lenient one in
//! three ways. A struct's unknown fields are all reported, each with its own line and the field
//! that was probably meant, and do not stop the reading. A null stands for an absent field, as it
//! does for the API server. And no value is converted: the number 1.20 is no string.
//!
//! Fields that real objects carry and Heddle has no use for are listed in [`unused`].

use std::cell::RefCell;
use std::fmt;

use serde::de::{
    DeserializeOwned, DeserializeSeed, Deserializer, Error as _, Expected, MapAccess, SeqAccess,
    Unexpected, Visitor,
};
use serde::forward_to_deserialize_any;

use super::node::{Entry, FieldPath, Node, Plain, Value};
use super::suggest;
use super::unused;

/// What is wrong with one field.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Fault {
    pub(crate) path: FieldPath,
    pub(crate) line: u32,
    pub(crate) reason: String,
    pub(crate) remedy: String,
}

/// What stands at the top of every object and is read apart from its body.
const HEAD: [&str; 3] = ["apiVersion", "kind", "metadata"];
/// What belongs into `metadata`, and is a slip of the indentation at the top of an object.
const METADATA: [&str; 4] = ["name", "namespace", "labels", "annotations"];

/// Reads an object's body: everything but its `apiVersion`, `kind` and `metadata`.
///
/// # Errors
/// Every unknown field, and the first field of a wrong type or the first one that is missing.
pub(crate) fn decode_body<T: DeserializeOwned>(root: &Node) -> Result<T, Vec<Fault>> {
    decode(root, root, FieldPath::default())
}

/// Reads an object's `metadata`.
///
/// # Errors
/// As [`decode_body`].
pub(crate) fn decode_metadata<T: DeserializeOwned>(root: &Node) -> Result<T, Vec<Fault>> {
    let path = FieldPath::of("metadata");
    match root.get("metadata") {
        Some(node) if node.value != Value::Null => decode(root, node, path),
        _ => Err(vec![Fault {
            line: root.line_of(&path),
            path,
            reason: "this field is required".to_owned(),
            remedy: match METADATA.iter().find(|field| root.get(field).is_some()) {
                Some(field) => format!("indent {field} under metadata"),
                None => "add metadata with a name".to_owned(),
            },
        }]),
    }
}

fn decode<T: DeserializeOwned>(root: &Node, node: &Node, path: FieldPath) -> Result<T, Vec<Fault>> {
    let faults = RefCell::new(Vec::new());
    let decoder = Decoder {
        node,
        path,
        faults: &faults,
    };
    let decoded = T::deserialize(decoder);
    let mut faults = faults.into_inner();
    match decoded {
        Ok(value) if faults.is_empty() => Ok(value),
        Ok(_) => Err(faults),
        Err(stop) => {
            faults.push(stop.into_fault(root));
            Err(faults)
        }
    }
}

/// Why the reading of a value stopped.
#[derive(Debug)]
struct Stop {
    /// Where; unknown until the error passes the place that knows it.
    path: Option<FieldPath>,
    /// A field that is missing at that place.
    missing: Option<&'static str>,
    reason: String,
    remedy: String,
}

impl Stop {
    fn new(reason: String, remedy: String) -> Self {
        Self {
            path: None,
            missing: None,
            reason,
            remedy,
        }
    }

    fn at(mut self, path: &FieldPath) -> Self {
        if self.path.is_none() {
            self.path = Some(match self.missing {
                Some(field) => path.field(field),
                None => path.clone(),
            });
        }
        self
    }

    fn into_fault(self, root: &Node) -> Fault {
        let path = self.path.unwrap_or_default();
        Fault {
            line: root.line_of(&path),
            path,
            reason: self.reason,
            remedy: self.remedy,
        }
    }
}

impl fmt::Display for Stop {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.reason)
    }
}

impl std::error::Error for Stop {}

impl serde::de::Error for Stop {
    fn custom<T: fmt::Display>(message: T) -> Self {
        Self::new(message.to_string(), String::new())
    }

    fn invalid_type(unexpected: Unexpected<'_>, expected: &dyn Expected) -> Self {
        Self::new(
            format!("expected {expected}, found a {unexpected}"),
            String::new(),
        )
    }

    fn missing_field(field: &'static str) -> Self {
        Self {
            missing: Some(field),
            ..Self::new("this field is required".to_owned(), format!("add {field}"))
        }
    }
}

/// Whether the field is a duration of the Gateway API's.
fn is_duration(path: &FieldPath) -> bool {
    path.parent_field() == Some("timeouts")
}

/// Seconds in whole milliseconds, if they are.
fn milliseconds(seconds: f64) -> Option<u64> {
    let ms = (seconds * 1_000.0).round();
    (1.0..=99_999.0).contains(&ms).then_some(ms as u64)
}

/// `90%`, `0.9`.
fn is_share(text: &str) -> bool {
    let number = text.trim_end_matches('%').trim_end();
    number.len() < text.len()
        || number
            .parse::<f64>()
            .is_ok_and(|value| value.fract() != 0.0)
}

/// A mapping of variables as the list that it should be; of many only the first.
fn variables(entries: &[Entry]) -> String {
    let Some(Entry { key, value, .. }) = entries.first() else {
        return "start each item with '- ', or write [a, b]".to_owned();
    };
    let value = match &value.value {
        Value::Plain(_, raw) => format!("\"{raw}\""),
        Value::Text(text) if text.chars().all(|c| c.is_ascii_alphanumeric()) => text.clone(),
        Value::Text(text) => format!("{text:?}"),
        _ => "…".to_owned(),
    };
    let more = if entries.len() > 1 { ", …" } else { "" };
    format!("write [{{name: {key}, value: {value}}}{more}]")
}

#[derive(Clone)]
struct Decoder<'n, 'f> {
    node: &'n Node,
    path: FieldPath,
    faults: &'f RefCell<Vec<Fault>>,
}

impl<'n> Decoder<'n, '_> {
    fn expected(&self, what: &str) -> Stop {
        let field = self.path.last_field().unwrap_or("");
        let remedy = match (&self.node.value, what) {
            (Value::Plain(Plain::Integer(_), raw), "a string") if is_duration(&self.path) => {
                format!("write it with its unit: {raw}s")
            }
            (Value::Plain(Plain::Float(value), _), "a string") if is_duration(&self.path) => {
                match milliseconds(*value) {
                    Some(ms) => format!("write it with its unit, without a fraction: {ms}ms"),
                    None => "write it with its unit, as in 1m30s".to_owned(),
                }
            }
            (Value::Plain(Plain::Float(_), _) | Value::Text(_), "a whole number")
                if field == "weight" && self.node.text().is_none_or(is_share) =>
            {
                "weights are whole numbers, each a share of their sum: 90 and 10 make 90 % and 10 %"
                    .to_owned()
            }
            (Value::Mapping(entries), "a list") if field == "env" => variables(entries),
            (Value::Plain(_, raw), "a string") => format!("put it in quotes: \"{raw}\""),
            (Value::Text(text), "a whole number") if text.parse::<i64>().is_ok() => {
                format!("remove the quotes: {text}")
            }
            (Value::Text(_), "a whole number") if field == "port" => {
                "write its number; only targetPort and sectionName take a port's name".to_owned()
            }
            (Value::Sequence(_) | Value::Mapping(_), "a string") => {
                match self.path.parent_field() {
                    Some(labels @ ("selector" | "labels" | "annotations")) => {
                        format!(
                            "if {field} belongs beside {labels}, indent it less, as far as {labels}"
                        )
                    }
                    _ => "write a single value".to_owned(),
                }
            }
            (Value::Text(text), "true or false") if matches!(&**text, "true" | "false") => {
                format!("remove the quotes: {text}")
            }
            (Value::Text(_) | Value::Plain(..) | Value::Mapping(_), "a list") => {
                "start each item with '- ', or write [a, b]".to_owned()
            }
            (Value::Null, "a string") => "write \"\" for an empty one".to_owned(),
            (Value::Sequence(_), "a mapping") => "remove the '- ' before it".to_owned(),
            _ => String::new(),
        };
        Stop::new(
            format!("expected {what}, found {}", self.node.describe()),
            remedy,
        )
        .at(&self.path)
    }

    fn string(&self) -> Result<&'n str, Stop> {
        self.node.text().ok_or_else(|| self.expected("a string"))
    }

    fn integer(&self) -> Result<i64, Stop> {
        match self.node.value {
            Value::Plain(Plain::Integer(value), _) => Ok(value),
            _ => Err(self.expected("a whole number")),
        }
    }

    fn entries(&self) -> Result<&'n [Entry], Stop> {
        match &self.node.value {
            Value::Mapping(entries) => Ok(entries),
            _ => Err(self.expected("a mapping")),
        }
    }

    /// Reports every key that is neither read nor known to be without effect.
    fn check_fields(&self, name: &str, read: &[&str], entries: &[Entry]) {
        let passed_over = unused::fields(name);
        let head: &[&str] = if self.path == FieldPath::default() {
            &HEAD
        } else {
            &[]
        };
        for entry in entries {
            let key = entry.key.as_str();
            let candidates = || read.iter().chain(passed_over).chain(head).copied();
            if candidates().any(|known| known == key) {
                continue;
            }
            let remedy = match suggest::nearest(key, candidates()) {
                _ if !head.is_empty() && METADATA.contains(&key) => {
                    "indent it under metadata".to_owned()
                }
                Some(meant) => format!("did you mean {meant}?"),
                None if read.is_empty() => "remove it".to_owned(),
                None => format!("the fields here are {}", read.join(", ")),
            };
            self.faults.borrow_mut().push(Fault {
                path: self.path.field(key),
                line: entry.line,
                reason: "unknown field".to_owned(),
                remedy,
            });
        }
    }
}

/// Methods that take the value through `integer`: range checks are serde's, which says the range.
macro_rules! integers {
    ($($method:ident)*) => {$(
        fn $method<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Stop> {
            let value = self.integer()?;
            visitor.visit_i64(value).map_err(|_: Stop| {
                Stop::new(
                    format!("the number {value} is out of range"),
                    "see the limits of this field".to_owned(),
                )
                .at(&self.path)
            })
        }
    )*};
}

impl<'de> Deserializer<'de> for Decoder<'de, '_> {
    type Error = Stop;

    fn deserialize_any<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Stop> {
        let path = self.path.clone();
        match &self.node.value {
            Value::Null => visitor.visit_unit(),
            Value::Plain(Plain::Bool(value), _) => visitor.visit_bool(*value),
            Value::Plain(Plain::Integer(value), _) => visitor.visit_i64(*value),
            Value::Plain(Plain::Float(value), _) => visitor.visit_f64(*value),
            Value::Text(text) => visitor.visit_borrowed_str(text),
            Value::Sequence(_) => return self.deserialize_seq(visitor),
            Value::Mapping(_) => return self.deserialize_map(visitor),
        }
        .map_err(|stop: Stop| stop.at(&path))
    }

    integers! {
        deserialize_i8 deserialize_i16 deserialize_i32 deserialize_i64
        deserialize_u8 deserialize_u16 deserialize_u32 deserialize_u64
    }

    fn deserialize_bool<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Stop> {
        match self.node.value {
            Value::Plain(Plain::Bool(value), _) => visitor.visit_bool(value),
            _ => Err(self.expected("true or false")),
        }
    }

    fn deserialize_str<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Stop> {
        visitor
            .visit_borrowed_str(self.string()?)
            .map_err(|stop: Stop| stop.at(&self.path))
    }

    fn deserialize_string<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Stop> {
        self.deserialize_str(visitor)
    }

    fn deserialize_option<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Stop> {
        match self.node.value {
            Value::Null => visitor.visit_none(),
            _ => visitor.visit_some(self),
        }
    }

    fn deserialize_newtype_struct<V: Visitor<'de>>(
        self,
        _name: &'static str,
        visitor: V,
    ) -> Result<V::Value, Stop> {
        visitor.visit_newtype_struct(self)
    }

    fn deserialize_seq<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Stop> {
        let Value::Sequence(items) = &self.node.value else {
            return Err(self.expected("a list"));
        };
        let path = self.path.clone();
        visitor
            .visit_seq(Items {
                items: items.iter().enumerate(),
                at: self,
            })
            .map_err(|stop| stop.at(&path))
    }

    fn deserialize_map<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Stop> {
        let entries = self.entries()?;
        let path = self.path.clone();
        visitor
            .visit_map(Fields {
                entries: entries.iter(),
                value: None,
                known: None,
                at: self,
            })
            .map_err(|stop| stop.at(&path))
    }

    fn deserialize_struct<V: Visitor<'de>>(
        self,
        name: &'static str,
        fields: &'static [&'static str],
        visitor: V,
    ) -> Result<V::Value, Stop> {
        let entries = self.entries()?;
        self.check_fields(name, fields, entries);
        let path = self.path.clone();
        visitor
            .visit_map(Fields {
                entries: entries.iter(),
                value: None,
                known: Some(fields),
                at: self,
            })
            .map_err(|stop| stop.at(&path))
    }

    fn deserialize_ignored_any<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Stop> {
        visitor.visit_unit()
    }

    forward_to_deserialize_any! {
        i128 u128 f32 f64 char bytes byte_buf unit unit_struct tuple tuple_struct enum identifier
    }
}

struct Items<'n, 'f> {
    items: std::iter::Enumerate<std::slice::Iter<'n, Node>>,
    at: Decoder<'n, 'f>,
}

impl<'de> SeqAccess<'de> for Items<'de, '_> {
    type Error = Stop;

    fn next_element_seed<T: DeserializeSeed<'de>>(
        &mut self,
        seed: T,
    ) -> Result<Option<T::Value>, Stop> {
        let Some((index, node)) = self.items.next() else {
            return Ok(None);
        };
        let path = self.at.path.index(index);
        seed.deserialize(Decoder {
            node,
            path,
            faults: self.at.faults,
        })
        .map(Some)
    }

    fn size_hint(&self) -> Option<usize> {
        Some(self.items.len())
    }
}

struct Fields<'n, 'f> {
    entries: std::slice::Iter<'n, Entry>,
    value: Option<&'n Entry>,
    /// The fields of a struct; none for a free mapping, where every key counts.
    known: Option<&'static [&'static str]>,
    at: Decoder<'n, 'f>,
}

impl<'de> MapAccess<'de> for Fields<'de, '_> {
    type Error = Stop;

    fn next_key_seed<K: DeserializeSeed<'de>>(
        &mut self,
        seed: K,
    ) -> Result<Option<K::Value>, Stop> {
        let known = self.known;
        let wanted = |entry: &&Entry| match known {
            Some(fields) => {
                fields.contains(&entry.key.as_str()) && entry.value.value != Value::Null
            }
            None => true,
        };
        self.value = self.entries.by_ref().find(wanted);
        let Some(entry) = self.value else {
            return Ok(None);
        };
        seed.deserialize(serde::de::value::BorrowedStrDeserializer::new(&entry.key))
            .map(Some)
    }

    fn next_value_seed<T: DeserializeSeed<'de>>(&mut self, seed: T) -> Result<T::Value, Stop> {
        let entry = self
            .value
            .take()
            .ok_or_else(|| Stop::custom("a value without its key"))?;
        let path = self.at.path.field(&entry.key);
        seed.deserialize(Decoder {
            node: &entry.value,
            path,
            faults: self.at.faults,
        })
    }
}
