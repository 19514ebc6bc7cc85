//! README's figures: a few of the results, between two markers.

use anyhow::Context;

use super::quotes::Records;
use super::shown;

const BEGINS: &str = "<!-- figures: rendered by make results, not by hand -->\n";
const ENDS: &str = "<!-- end of figures -->";

/// The figures that README quotes: a description, the part, and the names of the figures.
const FIGURES: [(&str, &str, &[&str]); 7] = [
    (
        "CPU of the proxy for a request, all at the same rate: ÷ Envoy / HAProxy / nginx",
        "proxy",
        &["cpu_vs_envoy", "cpu_vs_haproxy", "cpu_vs_nginx"],
    ),
    (
        "CPU of both proxies for a request between two nodes, with mutual TLS: ÷ the better pair of Envoys",
        "mtls",
        &["cpu_mtls_vs_envoy"],
    ),
    (
        "512 requests at once to three backends of unequal size: requests/s ÷ those without proxies, which is the limit / p99 / \
         maximum ÷ the best Envoy for each",
        "concurrency",
        &[
            "qps_vs_ceiling",
            "p99_vs_envoy_best_512",
            "max_vs_envoy_best_512",
        ],
    ),
    (
        "the same where backends take 67, 133 and 200 requests at once, as the proxies know",
        "concurrency",
        &[
            "qps_vs_ceiling_room",
            "p99_vs_envoy_best_512_room",
            "max_vs_envoy_best_512_room",
        ],
    ),
    (
        "memory of the proxies of a node with 100 servers: ÷ an Envoy for each pod / one Envoy for the node",
        "node-memory",
        &[
            "memory_node_vs_envoy_100",
            "memory_node_vs_shared_envoy_100",
        ],
    ),
    (
        "CPU of the proxies for a request between two pods of a node, which Heddle does not encrypt: ÷ an Envoy for each pod, \
         which do / one Envoy for the node, which does not",
        "node-cpu",
        &["cpu_node_vs_envoy", "cpu_node_vs_shared_envoy"],
    ),
    (
        "a node's proxy (101 pods) killed 20 times under load: at worst, ms from the kill to the next answer / ms that a request \
         waited / requests that failed in flight / requests lost besides",
        "crash",
        &[
            "back_worst_ms_100",
            "longest_wait_ms_100",
            "failed_in_flight_100",
            "lost_100",
        ],
    ),
];

/// The text between the markers.
pub(super) fn section(records: &Records) -> String {
    let mut text =
        "| figure | median [lowest–highest round] | commit |\n|---|---|---|\n".to_owned();
    for (what, part, names) in FIGURES {
        let record = records.get(part);
        let figures = names.iter().map(|name| {
            let figure = record.and_then(|record| record.figure(name));
            figure.map_or(shown::NOT_YET.to_owned(), |figure| {
                shown::with_spread(&figure)
            })
        });
        let mut figures: Vec<String> = figures.collect();
        if figures.iter().all(|figure| figure == shown::NOT_YET) {
            figures.truncate(1);
        }
        let commit = record.map_or("–".to_owned(), |record| {
            format!("{}, {}", shown::commit(record), record.origin.date)
        });
        text.push_str(&format!(
            "| {what} | {} | {commit} |\n",
            figures.join(" / ")
        ));
    }
    text
}

/// README with the rendered section between its markers.
///
/// # Errors
/// When README has no markers.
pub(super) fn filled(readme: &str, records: &Records) -> anyhow::Result<String> {
    let (before, after) = outside(readme)?;
    Ok(format!("{before}{BEGINS}{}{ENDS}{after}", section(records)))
}

/// The text before and behind the markers.
///
/// # Errors
/// When there are no markers.
pub(super) fn outside(readme: &str) -> anyhow::Result<(&str, &str)> {
    let (before, rest) = readme
        .split_once(BEGINS)
        .with_context(|| format!("README.md has no {}", BEGINS.trim()))?;
    let (_, after) = rest
        .split_once(ENDS)
        .with_context(|| format!("README.md has no {ENDS}"))?;
    Ok((before, after))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::results::parts::PARTS;
    use crate::results::record::tests::record;

    #[test]
    fn what_is_measured_is_quoted_with_its_commit_and_the_rest_is_said_not_to_be() {
        let report = json!({
            "ratios": {"cpu_mtls_vs_envoy": 0.36},
            "ratio_spreads": {"cpu_mtls_vs_envoy": {"median": 0.36, "min": 0.34, "max": 0.4, "rounds": 5}},
        });
        let records = Records::from([("mtls".to_owned(), record("mtls", report))]);
        let readme = format!("before\n{BEGINS}old\n{ENDS}\nafter");
        let filled = filled(&readme, &records).unwrap();
        assert!(
            filled.starts_with("before\n") && filled.ends_with("\nafter"),
            "{filled}"
        );
        assert!(
            filled.contains("| 0.36 [0.34–0.40] | c0ffee01, 2026-01-02 |"),
            "{filled}"
        );
        assert_eq!(
            filled.matches("| not measured yet | – |").count(),
            FIGURES.len() - 1
        );
        assert!(super::filled("no markers", &records).is_err());
    }

    #[test]
    fn every_part_that_is_quoted_exists() {
        for (_, part, _) in FIGURES {
            assert!(PARTS.iter().any(|known| known.name == part), "{part}");
        }
    }
}
