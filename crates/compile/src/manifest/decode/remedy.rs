//! The remedy for a value of a wrong type.

use super::super::node::{FieldPath, MappingEntry, Node, Plain, Value};

/// The remedy for a value that is not `what`; empty if the reason says everything.
pub(super) fn of(node: &Node, path: &FieldPath, what: &str) -> String {
    let field = path.last_field().unwrap_or("");
    match (&node.value, what) {
        (Value::Plain(Plain::Integer(_), raw), "a string") if is_duration(path) => {
            format!("write it with its unit: {raw}s")
        }
        (Value::Plain(Plain::Float(value), _), "a string") if is_duration(path) => {
            match milliseconds(*value) {
                Some(ms) => format!("write it with its unit, without a fraction: {ms}ms"),
                None => "write it with its unit, as in 1m30s".to_owned(),
            }
        }
        (Value::Plain(Plain::Float(_), _) | Value::Text(_), "a whole number")
            if field == "weight" && node.text().is_none_or(is_share) =>
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
        (Value::Sequence(_) | Value::Mapping(_), "a string") => match path.parent_field() {
            Some(labels @ ("selector" | "labels" | "annotations")) => {
                format!("if {field} belongs beside {labels}, indent it less, as far as {labels}")
            }
            _ => "write a single value".to_owned(),
        },
        (Value::Text(text), "true or false") if matches!(&**text, "true" | "false") => {
            format!("remove the quotes: {text}")
        }
        (Value::Text(_) | Value::Plain(..) | Value::Mapping(_), "a list") => {
            "start each item with '- ', or write [a, b]".to_owned()
        }
        (Value::Null, "a string") => "write \"\" for an empty one".to_owned(),
        (Value::Sequence(_), "a mapping") => "remove the '- ' before it".to_owned(),
        _ => String::new(),
    }
}

/// Whether the field is a duration of the Gateway API's.
fn is_duration(path: &FieldPath) -> bool {
    path.parent_field() == Some("timeouts")
}

/// Seconds as milliseconds, if in the range of a duration's digits.
fn milliseconds(seconds: f64) -> Option<u64> {
    let ms = (seconds * 1_000.0).round();
    (1.0..=99_999.0).contains(&ms).then_some(ms as u64)
}

/// Whether a text is a share, as `90%` or `0.9`.
fn is_share(text: &str) -> bool {
    let number = text.trim_end_matches('%').trim_end();
    number.len() < text.len()
        || number
            .parse::<f64>()
            .is_ok_and(|value| value.fract() != 0.0)
}

/// The list item to write for a mapping of variables; only the first one as an example.
fn variables(entries: &[MappingEntry]) -> String {
    let Some(MappingEntry { key, value, .. }) = entries.first() else {
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
