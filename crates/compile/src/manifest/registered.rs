//! A LocalWorkload from a registry instead of a file.
//!
//! It is the same object, read by the same rules. Its name and namespace come from its key, so that a client that may
//! write one key cannot register for another. Fields that only the owner of a machine may decide are refused: the
//! program to run, and health checks that bypass policies.

use std::net::Ipv6Addr;

use heddle_model::GROUP;
use heddle_model::report::{Origin, Problem, Severity};

use super::kind::{Kind, Verdict, judge};
use super::local::LocalWorkloadSpec;
use super::node::{MappingEntry, Node, Value};
use super::{Body, Object, Written, json, read_object, type_of, yaml};

/// Limit of values in one object.
const MAX_VALUES: usize = 2_000;
/// The label by which a Service can select the providers registered under its name.
pub(crate) const SERVICE_LABEL: &str = "heddle.dev/service";

/// The remedy for a value that is something else.
const WORKLOAD: &str =
    "write one LocalWorkload of heddle.dev/v1alpha1 in JSON or YAML, as heddle register does";

/// The names that the key contains.
pub(crate) struct Keyed<'k> {
    pub(crate) namespace: &'k str,
    pub(crate) service: &'k str,
    /// The workload's name.
    pub(crate) name: &'k str,
}

/// Reads the one object in a value.
///
/// # Errors
/// The first fault, as a warning: nothing in a registry stops the folder from being served.
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
    let documents = match json::parse(bytes, MAX_VALUES) {
        Some(document) => vec![document],
        None => yaml::parse(bytes, &mut values_left)
            .map_err(|error| problem("", &of_a_value(&error), WORKLOAD))?,
    };
    let Ok([mut tree]) = <[Node; 1]>::try_from(documents) else {
        return Err(problem(
            "",
            "a value must be exactly one object, not zero or several",
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
    let written = Written::new(origin, Kind::LocalWorkload, tree);
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

/// Why a value is not valid YAML; unlike a file's problem, this one has no line of its own.
fn of_a_value(error: &yaml::SyntaxError) -> String {
    let reason = error.reason.replace("the file", "the value");
    match error.line {
        Some(line) if line > 1 => format!("{reason}, in its line {line}"),
        _ => reason,
    }
}

/// Gives the object the name and namespace of its key. If the object has its own, they must be the same.
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
    // Metadata of another type are reported when they are decoded.
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

/// A field that a file may have but a registry must not: its path, the reason, and the remedy.
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
            "a registry may not decide what runs on a machine",
        )
    });
    let probe = probes.into_iter().map(|(field, there)| {
        (
            field,
            there,
            "a registry may not set health checks, which bypass policies",
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
        let reason = format!("a registry may not set labels of {GROUP}");
        return Some((field, reason, "remove it"));
    }
    None
}

/// An IPv4 address in its IPv6-mapped form is refused: one socket would have two addresses, and the second would seem
/// free.
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
