//! A node in the lab's file: its name, or its name and its own settings.

use std::fmt;
use std::path::PathBuf;

use heddle_model::NodeName;
use serde::de::value::MapAccessDeserializer;
use serde::de::{Error, MapAccess, Visitor};
use serde::{Deserialize, Deserializer};

/// `one`, or `{name: one, settings: one.yaml}`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(in crate::lab) struct NodeEntry {
    pub(in crate::lab) name: NodeName,
    /// Replaces `node_settings` of the lab's file.
    pub(in crate::lab) settings: Option<PathBuf>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Fields {
    name: NodeName,
    #[serde(default)]
    settings: Option<PathBuf>,
}

impl<'de> Deserialize<'de> for NodeEntry {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(Written)
    }
}

struct Written;

impl<'de> Visitor<'de> for Written {
    type Value = NodeEntry;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("the name of a node, or {name: …, settings: FILE}")
    }

    fn visit_str<E: Error>(self, name: &str) -> Result<NodeEntry, E> {
        Ok(NodeEntry {
            name: NodeName::parse(name).map_err(E::custom)?,
            settings: None,
        })
    }

    fn visit_map<A: MapAccess<'de>>(self, map: A) -> Result<NodeEntry, A::Error> {
        let Fields { name, settings } = Fields::deserialize(MapAccessDeserializer::new(map))?;
        Ok(NodeEntry { name, settings })
    }
}
