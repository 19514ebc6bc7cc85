//! A LocalWorkload that stands in a registry instead of a file.
//!
//! It is the same object, read by the same rules. Its name and namespace are those of its key, so that a
//! client that may write one key cannot speak for another, and what only the owner of a machine may decide is
//! refused: what runs there, and which checks go past the policies.

use std::net::Ipv6Addr;
use std::rc::Rc;

use heddle_model::GROUP;
use heddle_model::report::{Origin, Problem, Severity};

use super::kind::{Kind, Verdict, judge};
use super::local::LocalWorkloadSpec;
use super::node::{MappingEntry, Node, Value};
use super::{Body, Object, Written, key, label, read_object, type_of, yaml};

/// Values in one object.
const MAX_VALUES: usize = 2_000;
/// The label by which a Service can select what registered under its name.
pub(crate) const SERVICE_LABEL: &str = "heddle.dev/service";

/// What to write when a value is something else.
const WORKLOAD: &str =
    "write one LocalWorkload of heddle.dev/v1alpha1 in JSON or YAML, as heddle register does";

/// What its key says of it.
pub(crate) struct Keyed<'k> {
    pub(crate) namespace: &'k str,
    pub(crate) service: &'k str,
    /// The name of the workload.
    pub(crate) name: &'k str,
}

/// Reads the one object of a value.
///
/// # Errors
/// What is wrong first, as a warning: nothing in a registry keeps anything from being served.
pub(crate) fn read_registered(
    origin: &Origin,
    bytes: &[u8],
    keyed: &Keyed<'_>,
) -> Result<Object, Box<Problem>> {
    let problem = |field: &str, reason: &str, remedy: &str| {
        Box::new(Problem {
            severity: Severity::Warning,
            origin: origin.clone(),
            object: None,
            field: field.to_owned(),
            reason: reason.to_owned(),
            remedy: remedy.to_owned(),
            cause: None,
        })
    };
    let mut values_left = MAX_VALUES;
    let documents = yaml::parse(bytes, &mut values_left)
        .map_err(|error| problem("", &of_a_value(&error), WORKLOAD))?;
    let Ok([mut tree]) = <[Node; 1]>::try_from(documents) else {
        return Err(problem(
            "",
            "a value is one object, neither none nor several",
            WORKLOAD,
        ));
    };
    let (api_version, kind) =
        type_of(&tree).map_err(|(reason, _)| problem("", reason, WORKLOAD))?;
    match judge(api_version, kind) {
        Verdict::Read(Kind::LocalWorkload) => {}
        Verdict::Refuse {
            field,
            reason,
            remedy,
            ..
        } => return Err(problem(field, &reason, &remedy)),
        Verdict::Read(_) | Verdict::Skip(_) | Verdict::Unenforced { .. } => {
            return Err(problem("kind", "only LocalWorkloads register", WORKLOAD));
        }
    }
    name_it(&mut tree, keyed).map_err(|(field, reason)| {
        problem(&field, &reason, "leave it out: the key says it already")
    })?;
    let written = Written {
        origin: origin.clone(),
        label: label(Kind::LocalWorkload, &tree),
        key: key(Kind::LocalWorkload, &tree),
        tree: Rc::new(tree),
    };
    let mut object = read_object(Kind::LocalWorkload, &written).map_err(|faults| {
        let more = faults.len().saturating_sub(1);
        match faults.into_iter().next() {
            Some(fault) => {
                let more = match more {
                    0 => String::new(),
                    more => format!("; and {more} more faults"),
                };
                let reason = format!("{}{more}", fault.reason);
                problem(&fault.path.to_string(), &reason, &fault.remedy)
            }
            None => problem("", "this object cannot be read", ""),
        }
    })?;
    if let Some((field, reason, remedy)) = not_to_register(&object) {
        return Err(problem(&field, &reason, remedy));
    }
    let service = keyed.service.to_owned();
    object
        .metadata
        .labels
        .insert(SERVICE_LABEL.to_owned(), service);
    Ok(object)
}

/// Why a value is no YAML: a problem with it has no line, and there is no file.
fn of_a_value(error: &yaml::SyntaxError) -> String {
    let reason = error.reason.replace("the file", "the value");
    match error.line {
        Some(line) if line > 1 => format!("{reason}, in its line {line}"),
        _ => reason,
    }
}

/// Gives the object the name and namespace of its key. Those that it says itself have to be the same.
fn name_it(tree: &mut Node, keyed: &Keyed<'_>) -> Result<(), (String, String)> {
    let line = tree.line;
    let Value::Mapping(entries) = &mut tree.value else {
        return Ok(());
    };
    let entry = |key: &str, value: Value| MappingEntry {
        key: key.to_owned(),
        line,
        value: Node { line, value },
    };
    let written = entries.iter().position(|entry| entry.key == "metadata");
    let at = written.unwrap_or_else(|| {
        entries.push(entry("metadata", Value::Null));
        entries.len() - 1
    });
    let Some(metadata) = entries.get_mut(at) else {
        return Ok(());
    };
    if metadata.value.value == Value::Null {
        metadata.value.value = Value::Mapping(Vec::new());
    }
    // Whatever else it is, reading it says so.
    let Value::Mapping(fields) = &mut metadata.value.value else {
        return Ok(());
    };
    for (field, wanted) in [("name", keyed.name), ("namespace", keyed.namespace)] {
        let text = || Value::Text(wanted.to_owned());
        match fields.iter_mut().find(|entry| entry.key == field) {
            None => fields.push(entry(field, text())),
            Some(found) if found.value.value == Value::Null => found.value.value = text(),
            Some(found) if found.value.text() == Some(wanted) => {}
            Some(found) => {
                let reason = format!("this is {}, by its key {wanted:?}", found.value.describe());
                return Err((format!("metadata.{field}"), reason));
            }
        }
    }
    Ok(())
}

/// A field that may stand in a file and not in a registry: which, why, and what to do.
fn not_to_register(object: &Object) -> Option<(String, String, &'static str)> {
    let Body::LocalWorkload(body) = &object.body else {
        return None;
    };
    let spec = &body.spec;
    let remedy = "write it into a manifest of the folder instead";
    let commands = [
        ("command", !spec.command.is_empty()),
        ("args", !spec.args.is_empty()),
        ("env", !spec.env.is_empty()),
        ("workingDir", spec.working_dir.is_some()),
    ];
    let probes = [
        ("livenessProbe", spec.liveness_probe.is_some()),
        ("readinessProbe", spec.readiness_probe.is_some()),
        ("startupProbe", spec.startup_probe.is_some()),
    ];
    let command = commands.into_iter().map(|(field, there)| {
        (
            field,
            there,
            "what runs on a machine is not for a registry to say",
        )
    });
    let probe = probes.into_iter().map(|(field, there)| {
        (
            field,
            there,
            "what goes past the policies is not for a registry to say",
        )
    });
    if let Some((field, _, reason)) = command.chain(probe).find(|(_, there, _)| *there) {
        return Some((format!("spec.{field}"), reason.to_owned(), remedy));
    }
    if let Some((field, reason)) = mapped(spec) {
        return Some((field, reason, "write it as the IPv4 address that it is"));
    }
    if spec.ports.is_empty() {
        let reason = "it has no port".to_owned();
        return Some((
            "spec.ports".to_owned(),
            reason,
            "add the port that it serves",
        ));
    }
    let is_ours = |key: &&String| key.split_once('/').is_some_and(|(group, _)| group == GROUP);
    if let Some(label) = object.metadata.labels.keys().find(is_ours) {
        let field = format!("metadata.labels[{label}]");
        let reason = format!("labels of {GROUP} are not for a registry to say");
        return Some((field, reason, "remove it"));
    }
    None
}

/// An IPv4 address that is written as one of IPv6: one place would have two addresses, and the second be free.
fn mapped(spec: &LocalWorkloadSpec) -> Option<(String, String)> {
    let more = spec.addresses.iter().enumerate();
    let more = more.map(|(at, text)| (format!("spec.addresses[{at}]"), text));
    let all = std::iter::once(("spec.address".to_owned(), &spec.address)).chain(more);
    all.into_iter().find_map(|(field, text)| {
        let address: Ipv6Addr = text.parse().ok()?;
        let v4 = address.to_ipv4_mapped()?;
        Some((field, format!("{address} is {v4}")))
    })
}
