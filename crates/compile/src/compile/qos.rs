//! Node QoS: what a workload's labels and annotations say of its class, and of what may be done for it.

pub(super) use heddle_model::{CLASS_LABEL as CLASS, LATENCY_ANNOTATION as LATENCY};
use heddle_model::{ControlGroup, Qos, QosLabels};

use super::Scope;
use crate::manifest::Object;
use crate::manifest::node::FieldPath;

/// Path of the control group.
pub(super) const CGROUP: &str = "heddle.dev/cgroup";

/// What an object says of node QoS.
pub(super) fn of(object: &Object, scope: &mut Scope<'_>) -> Qos {
    let metadata = &object.metadata;
    let (qos, faults) = QosLabels::new(&metadata.labels, &metadata.annotations).read();
    for fault in faults {
        let path = FieldPath::of(fault.field).field(fault.key);
        match fault.is_harmless {
            true => scope.warn(&path, fault.reason, fault.remedy),
            false => scope.error(&path, fault.reason, fault.remedy),
        }
    }
    Qos {
        cgroup: cgroup(object, scope),
        ..qos
    }
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
