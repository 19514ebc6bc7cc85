//! `docs/metrics.md`: its tables are generated from the families.

use std::collections::BTreeSet;
use std::fmt::Write;
use std::sync::Arc;

use prometheus_client::metrics::MetricType;

use super::{Family, control, node, process, proxy, qos};
use crate::{Reporter, Tls, TrafficLabels};

const PAGE: &str = include_str!("../../../../docs/metrics.md");
const BEGINS: &str = "<!-- generated from the families in crates/telemetry, not by hand -->\n";
const GROUPS: [(&str, &[Family]); 5] = [
    ("The proxy", proxy::ALL),
    ("A node", node::ALL),
    ("A control plane", control::ALL),
    ("The agent of node QoS", qos::ALL),
    ("Every process", process::ALL),
];

/// The page as it should be: what stands before the mark, then every family.
fn page() -> String {
    let (before, _) = PAGE.split_once(BEGINS).expect("the mark");
    let mut page = format!("{before}{BEGINS}");
    for (title, families) in GROUPS {
        let head = "| metric | type | labels | what it says |\n|---|---|---|---|\n";
        write!(page, "\n## {title}\n\n{head}").expect("a string");
        for family in families {
            let labels = family.labels.join(", ");
            let more = family.more.map(|link| format!(" ([more]({link}))"));
            writeln!(
                page,
                "| `{}` | {} | {labels} | {}{} |",
                family.name,
                family.kind.as_str(),
                family.help,
                more.unwrap_or_default()
            )
            .expect("a string");
        }
    }
    page
}

#[test]
fn the_page_of_metrics_has_the_families_of_now() {
    assert!(
        page() == PAGE,
        "docs/metrics.md is old: cargo test -p heddle-telemetry the_page_of_metrics_is_written -- --ignored"
    );
}

/// Writes the page anew: `cargo test -p heddle-telemetry the_page_of_metrics_is_written -- --ignored`.
#[test]
#[ignore = "writes docs/metrics.md"]
fn the_page_of_metrics_is_written() {
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/metrics.md");
    std::fs::write(path, page()).expect("written");
}

#[test]
fn families_are_well_formed() {
    let mut seen = BTreeSet::new();
    for family in GROUPS.iter().flat_map(|(_, families)| *families) {
        let Family { name, help, .. } = family;
        assert!(seen.insert(name), "{name} is there twice");
        let is_counter = matches!(family.kind, MetricType::Counter);
        assert_eq!(name.ends_with("_total"), is_counter, "{name}");
        // The encoder escapes label values, but not the help text.
        assert!(!help.contains(['\\', '"', '\n', '|']), "{name}: {help}");
        assert!(help.ends_with('.'), "{name}: {help}");
    }
}

#[test]
fn the_page_explains_the_labels_of_traffic() {
    let nothing: Arc<str> = Arc::from("");
    let labels = TrafficLabels {
        reporter: Reporter::Both,
        source: nothing.clone(),
        source_principal: nothing.clone(),
        destination_service: nothing.clone(),
        destination_workload: nothing,
        tls: Tls::None,
    };
    for (label, _) in labels.list() {
        assert!(PAGE.contains(&format!("| `{label}` |")), "{label}");
    }
}
