//! The fields of a PodList that are read (k8s.io/api/core/v1). What is not needed is passed over without a copy, and no
//! list grows with what is sent.

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::fmt;
use std::marker::PhantomData;

use heddle_model::GROUP;
use serde::Deserialize;
use serde::de::{Deserializer, IgnoredAny, MapAccess, SeqAccess, Visitor};

use super::MAX_PODS;

/// Containers, conditions and their states that are looked at for each pod.
const MAX_PARTS: usize = 256;

#[derive(Deserialize)]
pub(in crate::kubelet) struct PodList {
    #[serde(default)]
    pub(in crate::kubelet) kind: String,
    /// One more than there may be, so that too many can be told.
    #[serde(default)]
    pub(in crate::kubelet) items: First<{ MAX_PODS + 1 }, PodJson>,
}

#[derive(Default, Deserialize)]
#[serde(default)]
pub(in crate::kubelet) struct PodJson {
    pub(in crate::kubelet) metadata: Metadata,
    pub(in crate::kubelet) spec: Spec,
    pub(in crate::kubelet) status: Status,
}

#[derive(Default, Deserialize)]
#[serde(default)]
pub(in crate::kubelet) struct Metadata {
    pub(in crate::kubelet) uid: String,
    pub(in crate::kubelet) name: String,
    pub(in crate::kubelet) namespace: String,
    #[serde(deserialize_with = "with_our_keys")]
    pub(in crate::kubelet) labels: BTreeMap<String, String>,
    #[serde(deserialize_with = "with_our_keys")]
    pub(in crate::kubelet) annotations: BTreeMap<String, String>,
}

#[derive(Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub(in crate::kubelet) struct Spec {
    pub(in crate::kubelet) host_network: bool,
    pub(in crate::kubelet) containers: First<MAX_PARTS, Container>,
    pub(in crate::kubelet) init_containers: First<MAX_PARTS, Container>,
}

#[derive(Default, Deserialize)]
#[serde(default)]
pub(in crate::kubelet) struct Container {
    pub(in crate::kubelet) name: String,
    pub(in crate::kubelet) resources: Option<Resources>,
}

#[derive(Default, Deserialize)]
#[serde(default)]
pub(in crate::kubelet) struct Resources {
    pub(in crate::kubelet) requests: Amounts,
    pub(in crate::kubelet) limits: Amounts,
}

/// Of the resources that can be changed while a container runs.
#[derive(Default, Deserialize)]
#[serde(default)]
pub(in crate::kubelet) struct Amounts {
    pub(in crate::kubelet) cpu: Option<String>,
    pub(in crate::kubelet) memory: Option<String>,
}

#[derive(Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub(in crate::kubelet) struct Status {
    pub(in crate::kubelet) phase: String,
    pub(in crate::kubelet) qos_class: String,
    #[serde(rename = "podIP")]
    pub(in crate::kubelet) pod_ip: String,
    pub(in crate::kubelet) conditions: First<MAX_PARTS, Condition>,
    /// Of kubelets before 1.33, which had no conditions for it.
    pub(in crate::kubelet) resize: String,
    pub(in crate::kubelet) container_statuses: First<MAX_PARTS, ContainerStatus>,
    pub(in crate::kubelet) init_container_statuses: First<MAX_PARTS, ContainerStatus>,
}

#[derive(Default, Deserialize)]
#[serde(default)]
pub(in crate::kubelet) struct Condition {
    #[serde(rename = "type")]
    pub(in crate::kubelet) name: String,
    pub(in crate::kubelet) status: String,
    pub(in crate::kubelet) reason: String,
}

#[derive(Default, Deserialize)]
#[serde(default)]
pub(in crate::kubelet) struct ContainerStatus {
    pub(in crate::kubelet) name: String,
    pub(in crate::kubelet) state: State,
    /// What is in force.
    pub(in crate::kubelet) resources: Option<Resources>,
}

#[derive(Default, Deserialize)]
#[serde(default)]
pub(in crate::kubelet) struct State {
    pub(in crate::kubelet) running: Option<IgnoredAny>,
}

/// The first members of a list; more are passed over. `null` is an empty list, as in Go.
pub(in crate::kubelet) struct First<const MAX: usize, T>(pub(in crate::kubelet) Vec<T>);

impl<const MAX: usize, T> Default for First<MAX, T> {
    fn default() -> Self {
        First(Vec::new())
    }
}

impl<'de, const MAX: usize, T: Deserialize<'de>> Deserialize<'de> for First<MAX, T> {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        struct Members<const MAX: usize, T>(PhantomData<T>);
        impl<'de, const MAX: usize, T: Deserialize<'de>> Visitor<'de> for Members<MAX, T> {
            type Value = First<MAX, T>;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a list")
            }

            fn visit_unit<E>(self) -> Result<Self::Value, E> {
                Ok(First::default())
            }

            fn visit_seq<A: SeqAccess<'de>>(self, mut all: A) -> Result<Self::Value, A::Error> {
                let mut first = Vec::new();
                while first.len() < MAX {
                    match all.next_element()? {
                        Some(member) => first.push(member),
                        None => return Ok(First(first)),
                    }
                }
                while all.next_element::<IgnoredAny>()?.is_some() {}
                Ok(First(first))
            }
        }
        from.deserialize_any(Members(PhantomData))
    }
}

/// Whether a label or annotation means something here. Others may be long, and are not kept.
fn is_ours(key: &str) -> bool {
    let group = key.split('/').next().unwrap_or_default();
    group == GROUP || group == "volcano.sh" || key.starts_with("kubernetes.io/config.")
}

fn with_our_keys<'de, D: Deserializer<'de>>(from: D) -> Result<BTreeMap<String, String>, D::Error> {
    struct Ours;
    impl<'de> Visitor<'de> for Ours {
        type Value = BTreeMap<String, String>;

        fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
            f.write_str("an object of texts")
        }

        fn visit_unit<E>(self) -> Result<Self::Value, E> {
            Ok(BTreeMap::new())
        }

        fn visit_map<A: MapAccess<'de>>(self, mut all: A) -> Result<Self::Value, A::Error> {
            let mut ours = BTreeMap::new();
            while let Some(key) = all.next_key::<Cow<'de, str>>()? {
                match is_ours(&key) {
                    true => {
                        ours.insert(key.into_owned(), all.next_value()?);
                    }
                    false => {
                        all.next_value::<IgnoredAny>()?;
                    }
                }
            }
            Ok(ours)
        }
    }
    from.deserialize_any(Ours)
}
