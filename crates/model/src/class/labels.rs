//! What labels and annotations say of a pod's class, and of what node QoS may do for it. Those of Volcano, which
//! openEuler's rubik reads, mean the same here.

use std::collections::BTreeMap;

use super::{Class, Qos};
use crate::duration_ms;

#[cfg(test)]
mod tests;

/// `online` or `offline`.
pub const CLASS_LABEL: &str = "heddle.dev/class";
/// `true` for offline.
const PREEMPTABLE: &str = "volcano.sh/preemptable";
/// What [`PREEMPTABLE`] is often written as: no program reads it.
const PREEMPTIBLE: &str = "volcano.sh/preemptible";
/// `true` for quota turbo.
const QUOTA_TURBO: &str = "volcano.sh/quota-turbo";
/// Microseconds.
const QUOTA_BURST: &str = "volcano.sh/quota-burst-time";
/// Annotation, a duration: the p99 that an online pod should have.
pub const LATENCY_ANNOTATION: &str = "heddle.dev/latency-p99";
/// Largest objective, in milliseconds: durations above are not told apart.
const MAX_P99_MS: u64 = 10_000;
/// Longest burst, in microseconds. The kernel takes at most the quota.
const MAX_BURST_US: u64 = 60_000_000;
/// Characters of a wrong value that are shown.
const SHOWN: usize = 64;

/// A label or annotation that is not understood.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct QosFault {
    /// The field of the object: `metadata.labels` or `metadata.annotations`.
    pub field: &'static str,
    /// The key in it.
    pub key: &'static str,
    /// What is wrong.
    pub reason: String,
    /// What to write instead.
    pub remedy: String,
    /// Whether it is understood, and only has no effect.
    pub is_harmless: bool,
}

/// The labels and annotations of an object. A label wins over an annotation of the same key.
#[derive(Debug, Clone, Copy)]
pub struct QosLabels<'o> {
    labels: &'o BTreeMap<String, String>,
    annotations: &'o BTreeMap<String, String>,
}

impl<'o> QosLabels<'o> {
    /// Of `metadata.labels` and `metadata.annotations`.
    pub fn new(
        labels: &'o BTreeMap<String, String>,
        annotations: &'o BTreeMap<String, String>,
    ) -> Self {
        QosLabels {
            labels,
            annotations,
        }
    }

    /// What they say, apart from the control group, and what of it is not understood and left out.
    pub fn read(self) -> (Qos, Vec<QosFault>) {
        let mut faults = Vec::new();
        let preemptable = self.truth(PREEMPTABLE, &mut faults);
        let class = self.class(&mut faults);
        if let Some((field, _)) = self.value(PREEMPTIBLE) {
            faults.push(QosFault {
                field,
                key: PREEMPTIBLE,
                reason: "no program reads it".to_owned(),
                remedy: format!("write {PREEMPTABLE}"),
                is_harmless: true,
            });
        }
        if let (Some((field, Class::Online)), Some(true)) = (class, preemptable) {
            faults.push(QosFault {
                field,
                key: CLASS_LABEL,
                reason: format!("it is online here, and offline by {PREEMPTABLE}"),
                remedy: "remove one of them".to_owned(),
                is_harmless: false,
            });
        }
        let by_volcano = match preemptable {
            Some(true) => Class::Offline,
            Some(false) | None => Class::Online,
        };
        let class = class.map_or(by_volcano, |(_, class)| class);
        let qos = Qos {
            class,
            quota_turbo: self.truth(QUOTA_TURBO, &mut faults).unwrap_or(false),
            quota_burst_us: self.burst(&mut faults),
            latency_p99_ms: self.latency(class, &mut faults),
            cgroup: None,
        };
        (qos, faults)
    }

    fn value(self, key: &str) -> Option<(&'static str, &'o str)> {
        let all = [
            ("metadata.labels", self.labels),
            ("metadata.annotations", self.annotations),
        ];
        all.into_iter()
            .find_map(|(field, map)| Some((field, map.get(key)?.as_str())))
    }

    fn class(self, faults: &mut Vec<QosFault>) -> Option<(&'static str, Class)> {
        let (field, text) = self.value(CLASS_LABEL)?;
        let all = [Class::Online, Class::Offline];
        let class = all.into_iter().find(|class| class.as_str() == text);
        if class.is_none() {
            faults.push(QosFault {
                field,
                key: CLASS_LABEL,
                reason: format!("{:?} is no class", shown(text)),
                // No guess: the two differ in two letters.
                remedy: "use online or offline".to_owned(),
                is_harmless: false,
            });
        }
        Some((field, class?))
    }

    fn truth(self, key: &'static str, faults: &mut Vec<QosFault>) -> Option<bool> {
        let (field, text) = self.value(key)?;
        match text {
            "true" => Some(true),
            "false" => Some(false),
            _ => {
                faults.push(QosFault {
                    field,
                    key,
                    reason: format!("{:?} is neither true nor false", shown(text)),
                    remedy: "write \"true\" or \"false\"".to_owned(),
                    is_harmless: false,
                });
                None
            }
        }
    }

    fn burst(self, faults: &mut Vec<QosFault>) -> Option<u64> {
        let (field, text) = self.value(QUOTA_BURST)?;
        let us = text.parse().ok().filter(|us| *us <= MAX_BURST_US);
        if us.is_none() {
            faults.push(QosFault {
                field,
                key: QUOTA_BURST,
                reason: format!("{:?} is no time in microseconds", shown(text)),
                remedy: format!("write a whole number up to {MAX_BURST_US}"),
                is_harmless: false,
            });
        }
        us
    }

    fn latency(self, class: Class, faults: &mut Vec<QosFault>) -> Option<u64> {
        let text = self.annotations.get(LATENCY_ANNOTATION)?;
        let fault = |reason, remedy, is_harmless| QosFault {
            field: "metadata.annotations",
            key: LATENCY_ANNOTATION,
            reason,
            remedy,
            is_harmless,
        };
        let ms = duration_ms(text).filter(|ms| (1..=MAX_P99_MS).contains(ms));
        if ms.is_none() {
            faults.push(fault(
                format!("{:?} is no duration from 1ms to 10s", shown(text)),
                "write it with its unit, such as 5ms".to_owned(),
                false,
            ));
        } else if class == Class::Offline {
            faults.push(fault(
                "an offline pod has no objective".to_owned(),
                "remove it, or let the pod be online".to_owned(),
                true,
            ));
            return None;
        }
        ms
    }
}

/// The first characters of a value: an annotation may have 256 KiB.
fn shown(text: &str) -> String {
    text.chars().take(SHOWN).collect()
}
