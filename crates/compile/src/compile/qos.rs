//! Node QoS: what labels and annotations say of a workload's class, and of what may be done for it. Those of Volcano,
//! which openEuler's rubik reads, mean the same here.

use heddle_model::{Class, ControlGroup, Qos};

use super::Scope;
use crate::manifest::Object;
use crate::manifest::node::FieldPath;

/// `online` or `offline`.
pub(super) const CLASS: &str = "heddle.dev/class";
/// `true` for offline.
const PREEMPTABLE: &str = "volcano.sh/preemptable";
/// `true` for quota turbo.
const QUOTA_TURBO: &str = "volcano.sh/quota-turbo";
/// Microseconds.
const QUOTA_BURST: &str = "volcano.sh/quota-burst-time";
/// Path of the control group.
pub(super) const CGROUP: &str = "heddle.dev/cgroup";
/// Longest burst, in microseconds. The kernel takes at most the quota.
const MAX_BURST_US: u64 = 60_000_000;

/// What an object says of node QoS.
pub(super) fn of(object: &Object, scope: &mut Scope<'_>) -> Qos {
    let preemptable = truth(object, PREEMPTABLE, scope);
    let class = class(object, scope);
    if let (Some((path, Class::Online)), Some(true)) = (&class, preemptable) {
        let reason = format!("it is online here, and offline by {PREEMPTABLE}");
        scope.error(path, reason, "remove one of them");
    }
    let by_volcano = match preemptable {
        Some(true) => Class::Offline,
        Some(false) | None => Class::Online,
    };
    Qos {
        class: class.map_or(by_volcano, |(_, class)| class),
        quota_turbo: truth(object, QUOTA_TURBO, scope).unwrap_or(false),
        quota_burst_us: burst(object, scope),
        cgroup: cgroup(object, scope),
    }
}

/// The value of a label, else of an annotation.
fn value<'o>(object: &'o Object, key: &str) -> Option<(FieldPath, &'o str)> {
    let metadata = &object.metadata;
    let all = [
        ("metadata.labels", &metadata.labels),
        ("metadata.annotations", &metadata.annotations),
    ];
    all.into_iter()
        .find_map(|(at, map)| Some((FieldPath::of(at).field(key), map.get(key)?.as_str())))
}

fn class(object: &Object, scope: &mut Scope<'_>) -> Option<(FieldPath, Class)> {
    let (path, text) = value(object, CLASS)?;
    let all = [Class::Online, Class::Offline];
    if let Some(class) = all.into_iter().find(|class| class.as_str() == text) {
        return Some((path, class));
    }
    scope.error(
        &path,
        format!("{text:?} is no class"),
        // No guess: the two differ in two letters.
        "use online or offline",
    );
    None
}

fn truth(object: &Object, key: &str, scope: &mut Scope<'_>) -> Option<bool> {
    let (path, text) = value(object, key)?;
    match text {
        "true" => Some(true),
        "false" => Some(false),
        _ => {
            scope.error(
                &path,
                format!("{text:?} is neither true nor false"),
                "write \"true\" or \"false\"",
            );
            None
        }
    }
}

fn burst(object: &Object, scope: &mut Scope<'_>) -> Option<u64> {
    let (path, text) = value(object, QUOTA_BURST)?;
    let us = text.parse().ok().filter(|us| *us <= MAX_BURST_US);
    if us.is_none() {
        scope.error(
            &path,
            format!("{text:?} is no time in microseconds"),
            format!("write a whole number up to {MAX_BURST_US}"),
        );
    }
    us
}

fn cgroup(object: &Object, scope: &mut Scope<'_>) -> Option<ControlGroup> {
    let text = object.metadata.annotations.get(CGROUP)?;
    let path = FieldPath::of("metadata.annotations").field(CGROUP);
    if object.written.origin.is_registry() {
        scope.error(
            &path,
            "a registration cannot choose a control group",
            "remove it",
        );
        return None;
    }
    let group = ControlGroup::new(text);
    let checked = group.map_err(|reason| {
        let remedy = "write one below the root, such as system.slice/backup.service";
        scope.error(&path, reason, remedy);
    });
    checked.ok()
}
