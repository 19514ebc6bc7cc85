//! What is read here is read in the same way by the parser of YAML.

use proptest::prelude::*;
use serde_json::json;

use super::{Node, parse};
use crate::manifest::yaml;

fn by_yaml(text: &str) -> Option<Node> {
    let documents = yaml::parse(text.as_bytes(), &mut 1_000_000).ok()?;
    let [node] = <[Node; 1]>::try_from(documents).ok()?;
    Some(node)
}

fn value() -> impl Strategy<Value = serde_json::Value> {
    let odd = [
        "yes", "1", "~", "- a", "a: b", "*a", "&a", "!!str", " a", "a #b", "",
    ];
    let leaf = prop_oneof![
        Just(json!(null)),
        any::<bool>().prop_map(|value| json!(value)),
        any::<i64>().prop_map(|value| json!(value)),
        any::<u64>().prop_map(|value| json!(value)),
        any::<f64>().prop_map(|value| json!(value)),
        "[ -~]{0,12}".prop_map(|value| json!(value)),
        "\\PC{0,6}".prop_map(|value| json!(value)),
        prop::sample::select(odd.to_vec()).prop_map(|value| json!(value)),
    ];
    leaf.prop_recursive(4, 24, 4, |inner| {
        let entries = prop::collection::btree_map("[ -~]{0,8}", inner.clone(), 0..4);
        prop_oneof![
            prop::collection::vec(inner, 0..4).prop_map(|items| json!(items)),
            entries.prop_map(|entries| json!(entries)),
        ]
    })
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(1_000))]

    #[test]
    fn it_means_the_same_in_yaml(value in value(), is_spaced in any::<bool>()) {
        let mut text = json!({"v": value}).to_string();
        if is_spaced {
            text = text.replace("\":", "\" : ").replace(",\"", " , \"");
        }
        if let Some(node) = parse(text.as_bytes(), 1_000) {
            prop_assert_eq!(Some(node), by_yaml(&text), "{}", text);
        }
    }

    #[test]
    fn a_text_that_is_no_json_is_left_alone(text in "[{}:,\"a1 #&*!|>\\[\\]-]{0,24}") {
        let text = format!("{{{text}");
        if let Some(node) = parse(text.as_bytes(), 1_000) {
            prop_assert_eq!(Some(node), by_yaml(&text), "{}", text);
        }
    }
}

#[test]
fn what_a_program_writes_is_read() {
    let ports = json!([{"port": 8080, "name": "http"}]);
    let text = json!({"apiVersion": "v1", "spec": {"ports": ports, "more": null}});
    assert!(parse(text.to_string().as_bytes(), 1_000).is_some());
}

#[test]
fn the_rest_is_left_to_the_other_parser() {
    let long = format!("{{\"a\": {}{}}}", "[".repeat(40), "]".repeat(40));
    for text in [
        "[1]",
        "a: b",
        r#"{"a": 1.5}"#,
        r#"{"a": 1, "a": 2}"#,
        r#"{"a": "\n"}"#,
        "{\n}",
        r#"{"a""#,
        r#"{"é": 1}"#,
        &long,
    ] {
        assert!(parse(text.as_bytes(), 1_000).is_none(), "{text}");
    }
    let many = format!("{{\"a\": [{}1]}}", "1,".repeat(1_000));
    assert!(parse(many.as_bytes(), 1_000).is_none(), "too many values");
}
