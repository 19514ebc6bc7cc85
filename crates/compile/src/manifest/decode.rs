//! Decodes trees into typed structs, strictly.
//!
//! A serde deserializer over [`Node`] that tracks its position. It differs from a lenient one in three ways. All
//! unknown fields of a struct are reported, each with its own line and the probably intended field, and do not end the
//! decoding. A null counts as an absent field, as for the API server. And no value is converted: the number 1.20 is not
//! accepted as a string.
//!
//! serde stops at the first value of a wrong type. To report the others too, the object is decoded again with a
//! stand-in at that place, and refused nevertheless.
//!
//! [`unused`] lists the fields of real objects that Heddle ignores.

mod remedy;
mod stop;

use std::cell::RefCell;

use serde::de::{
    DeserializeOwned, DeserializeSeed, Deserializer, Error as _, MapAccess, SeqAccess, Visitor,
};
use serde::forward_to_deserialize_any;

use super::node::{FieldPath, MappingEntry, Node, Plain, Value};
use super::suggest;
use super::unused;
use stop::Stop;

/// The fault of one field.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Fault {
    pub(crate) path: FieldPath,
    pub(crate) line: u32,
    pub(crate) reason: String,
    pub(crate) remedy: String,
}

/// Limit of wrongly typed values and missing fields reported for one object.
const MAX_STOPS: usize = 10;
/// Limit of stand-ins in one object: those faults, and the fields that a stand-in itself needs.
const MAX_STAND_INS: usize = 4 * MAX_STOPS;
/// The stand-in for a missing field.
static NOTHING: Node = Node {
    line: 0,
    value: Value::Null,
};

/// Fields at the top of every object, decoded apart from its body.
const HEAD: [&str; 3] = ["apiVersion", "kind", "metadata"];
/// Fields of `metadata`, which are wrongly indented when they are at the top of an object.
const METADATA: [&str; 4] = ["name", "namespace", "labels", "annotations"];

/// Decodes an object's body: everything but its `apiVersion`, `kind` and `metadata`.
///
/// # Errors
/// Every unknown field, and the first [`MAX_STOPS`] of a wrong type or missing.
pub(crate) fn decode_body<T: DeserializeOwned>(root: &Node) -> Result<T, Vec<Fault>> {
    decode(root, root, &FieldPath::default())
}

/// Decodes an object's `metadata`.
///
/// # Errors
/// As [`decode_body`].
pub(crate) fn decode_metadata<T: DeserializeOwned>(root: &Node) -> Result<T, Vec<Fault>> {
    let path = FieldPath::of("metadata");
    match root.get("metadata") {
        Some(node) if node.value != Value::Null => decode(root, node, &path),
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

/// Decodes one field of an object; `None` if it is not there or has a fault.
pub(crate) fn decode_field<T: DeserializeOwned>(root: &Node, path: &FieldPath) -> Option<T> {
    let node = root.at(path)?;
    decode(root, node, path).ok()
}

fn decode<T: DeserializeOwned>(
    root: &Node,
    node: &Node,
    path: &FieldPath,
) -> Result<T, Vec<Fault>> {
    let mut stops = Vec::new();
    let mut stand_ins: Vec<FieldPath> = Vec::new();
    loop {
        let faults = RefCell::new(Vec::new());
        let decoder = Decoder {
            node,
            path: path.clone(),
            faults: &faults,
            stand_ins: &stand_ins,
        };
        let decoded = T::deserialize(decoder);
        // Each pass finds the unknown fields again: the last pass has all of them.
        let mut faults = faults.into_inner();
        let stop = match decoded {
            Ok(value) if stops.is_empty() && faults.is_empty() => return Ok(value),
            Ok(_) => None,
            Err(stop) => Some(stop),
        };
        let Some(stop) = stop else {
            stops.append(&mut faults);
            return Err(stops);
        };
        let at = stop.path.clone().unwrap_or_default();
        // A field missing within a stand-in is not a fault of the manifest.
        if !stand_ins.iter().any(|other| at.is_within(other)) {
            stops.push(stop.into_fault(root));
        }
        let enough = stops.len() == MAX_STOPS || stand_ins.len() == MAX_STAND_INS;
        if stand_ins.contains(&at) || enough {
            stops.append(&mut faults);
            return Err(stops);
        }
        stand_ins.push(at);
    }
}

#[derive(Clone)]
struct Decoder<'n, 'f> {
    node: &'n Node,
    path: FieldPath,
    faults: &'f RefCell<Vec<Fault>>,
    /// Faulty fields, reported already, that are decoded as a stand-in.
    stand_ins: &'f [FieldPath],
}

impl<'n> Decoder<'n, '_> {
    fn is_stand_in(&self) -> bool {
        self.stand_ins.contains(&self.path)
    }

    fn expected(&self, what: &str) -> Stop {
        let remedy = remedy::of(self.node, &self.path, what);
        Stop::new(
            format!("expected {what}, found {}", self.node.describe()),
            remedy,
        )
        .at(&self.path)
    }

    fn string(&self) -> Result<&'n str, Stop> {
        match self.node.text() {
            None if self.is_stand_in() => Ok(""),
            text => text.ok_or_else(|| self.expected("a string")),
        }
    }

    fn integer(&self) -> Result<i64, Stop> {
        match self.node.value {
            Value::Plain(Plain::Integer(value), _) => Ok(value),
            _ if self.is_stand_in() => Ok(1),
            _ => Err(self.expected("a whole number")),
        }
    }

    fn entries(&self) -> Result<&'n [MappingEntry], Stop> {
        match &self.node.value {
            Value::Mapping(entries) => Ok(entries),
            _ if self.is_stand_in() => Ok(&[]),
            _ => Err(self.expected("a mapping")),
        }
    }

    /// Reports every key that is neither decoded nor known to be without effect.
    fn check_fields(&self, name: &str, read: &[&str], entries: &[MappingEntry]) {
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

/// Methods that take the value through `integer`: serde checks the range, and its message names it.
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
        if self.is_stand_in() {
            // Any visitor that accepts every type accepts a number; another one fails, and is not given a stand-in
            // again.
            return visitor.visit_i64(1);
        }
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
            _ if self.is_stand_in() => visitor.visit_bool(false),
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
        let items = match &self.node.value {
            Value::Sequence(items) => &items[..],
            _ if self.is_stand_in() => &[],
            _ => return Err(self.expected("a list")),
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
                missing: [].iter(),
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
                missing: fields.iter(),
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
            ..self.at
        })
        .map(Some)
    }

    fn size_hint(&self) -> Option<usize> {
        Some(self.items.len())
    }
}

struct Fields<'n, 'f> {
    entries: std::slice::Iter<'n, MappingEntry>,
    value: Option<(&'n str, &'n Node)>,
    /// The fields of a struct; `None` for a map, in which every key is valid.
    known: Option<&'static [&'static str]>,
    /// The remaining fields, of which missing ones may have a stand-in.
    missing: std::slice::Iter<'static, &'static str>,
    at: Decoder<'n, 'f>,
}

impl<'de> MapAccess<'de> for Fields<'de, '_> {
    type Error = Stop;

    fn next_key_seed<K: DeserializeSeed<'de>>(
        &mut self,
        seed: K,
    ) -> Result<Option<K::Value>, Stop> {
        let known = self.known;
        let wanted = |entry: &&MappingEntry| match known {
            Some(fields) => {
                fields.contains(&entry.key.as_str()) && entry.value.value != Value::Null
            }
            None => true,
        };
        let written = self.entries.by_ref().find(wanted);
        self.value = match written {
            Some(entry) => Some((entry.key.as_str(), &entry.value)),
            None => self.next_missing().map(|field| (field, &NOTHING)),
        };
        let Some((key, _)) = self.value else {
            return Ok(None);
        };
        seed.deserialize(serde::de::value::BorrowedStrDeserializer::new(key))
            .map(Some)
    }

    fn next_value_seed<T: DeserializeSeed<'de>>(&mut self, seed: T) -> Result<T::Value, Stop> {
        let (key, node) = self
            .value
            .take()
            .ok_or_else(|| Stop::custom("a value without its key"))?;
        let path = self.at.path.field(key);
        seed.deserialize(Decoder {
            node,
            path,
            ..self.at
        })
    }
}

impl Fields<'_, '_> {
    /// The next missing field that has a stand-in.
    fn next_missing(&mut self) -> Option<&'static str> {
        if self.at.stand_ins.is_empty() {
            return None;
        }
        let Fields { missing, at, .. } = self;
        let field = missing.find(|field| {
            let node = at.node.get(field);
            let is_written = node.is_some_and(|node| node.value != Value::Null);
            !is_written && at.stand_ins.contains(&at.path.field(field))
        });
        field.copied()
    }
}
