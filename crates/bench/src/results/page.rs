//! The page of all results, docs/results/README.md.

use std::fmt::Write;

use serde_json::Value;

use super::parts::{PARTS, Part};
use super::quotes::Records;
use super::record::Record;
use super::shown;
use crate::runner::NOT_FOR_PUBLICATION;

pub(super) fn page(records: &Records, draft: bool) -> String {
    let mut text = "# Results\n\n".to_owned();
    if draft {
        text.push_str(&format!("**A draft: {NOT_FOR_PUBLICATION}.**\n\n"));
    }
    text.push_str(
        "Written by `make results`; [benchmarks.md](../benchmarks.md) says how each is measured and explains the names. \
         Figures are medians, with the lowest and the highest round behind them where there are several. Every part \
         names the commit that it was measured on.\n",
    );
    let sections = PARTS.iter().map(|part| match records.get(part.name) {
        Some(record) => measured(part, record),
        None => format!(
            "\n## {}\n\n`{}`: {}.\n",
            part.title,
            part.name,
            shown::NOT_YET
        ),
    });
    text.extend(sections);
    text
}

fn measured(part: &Part, record: &Record) -> String {
    let mut text = format!("\n## {}\n\n", part.title);
    // Writing to a string cannot fail.
    let mut say = |line: std::fmt::Arguments| {
        let _ = writeln!(text, "{line}");
    };
    say(format_args!("{}\n", circumstances(part, record)));
    say(format_args!("**Counted:** {}", part.counted));
    say(format_args!("**Peers:** {}\n", part.settings));
    for why in record.invalid() {
        say(format_args!("**This does not count:** {why}.\n"));
    }
    say(format_args!(
        "| figure | median | lowest–highest | rounds |"
    ));
    say(format_args!("|---|---|---|---|"));
    for name in record.names() {
        let Some(figure) = record.figure(name) else {
            continue;
        };
        let unit = shown::unit(name, &figure);
        let median = shown::figure(&figure);
        let (range, rounds) = match figure.spread {
            Some(spread) => {
                let all = shown::with_spread(&figure);
                let range = all.split_once(" [").map_or("", |(_, range)| range);
                (
                    range.trim_end_matches(']').to_owned(),
                    spread.rounds.to_string(),
                )
            }
            None => ("–".to_owned(), "–".to_owned()),
        };
        let line = format!("| `{name}` | {median} {unit}");
        say(format_args!("{} | {range} | {rounds} |", line.trim_end()));
    }
    let left_out = record.invalid_rows().into_iter();
    let left_out = left_out.map(|(system, why)| format!("left out: {system}: {why}"));
    let notes = ["problems", "notes"].map(|kind| record.said(kind)).concat();
    let notes: Vec<String> = notes
        .into_iter()
        .map(str::to_owned)
        .chain(left_out)
        .collect();
    if !notes.is_empty() {
        say(format_args!(""));
        for note in notes {
            say(format_args!("- {}", note.replace('\n', " ")));
        }
    }
    say(format_args!("\n![{}]({}.svg)", part.title, part.name));
    text
}

fn circumstances(part: &Part, record: &Record) -> String {
    let machine = |name: &str| {
        let value = record.report.get("machine").and_then(|all| all.get(name));
        match value {
            Some(Value::String(text)) => text.clone(),
            Some(value) => value.to_string(),
            None => "unknown".to_owned(),
        }
    };
    let origin = &record.origin;
    let mut versions: Vec<String> = vec![origin.compiler.clone()];
    versions.extend(
        record
            .versions
            .iter()
            .map(|(name, version)| format!("{name} {version}")),
    );
    let minutes = record.took_s.div_ceil(60);
    let length = match (part.has_published, origin.published) {
        (true, true) => ", with the windows of the publication",
        (true, false) => ", with shorter windows than in the publication",
        (false, _) => "",
    };
    format!(
        "`{}` at commit {} on {}, in {minutes} min{length}: {} × {}, Linux {}. {}.",
        part.name,
        shown::commit(record),
        origin.date,
        machine("cores"),
        machine("cpu"),
        machine("kernel"),
        versions.join(", ")
    )
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::results::record::tests::record;

    #[test]
    fn a_part_has_its_circumstances_and_its_figures() {
        let report = json!({
            "machine": {"cpu": "A CPU", "cores": 2, "kernel": "6.1"},
            "ratios": {"cpu_vs_envoy": 0.44},
            "ratio_spreads": {"cpu_vs_envoy": {"median": 0.44, "min": 0.4, "max": 0.5, "rounds": 5}},
            "values": {"heddle_cpu_us_per_request": 35.0},
            "problems": ["left out: nginx, round 1"],
            "rows": [{"system": "envoy", "measure": "memory_loaded", "valid": false, "problem": "carried 4,277"}],
        });
        let mut record = record("proxy", report);
        record
            .versions
            .insert("Envoy".to_owned(), "1.40.0".to_owned());
        let page = page(&Records::from([("proxy".to_owned(), record)]), false);
        for line in [
            "`proxy` at commit c0ffee01 on 2026-01-02, in 1 min: 2 × A CPU, Linux 6.1. rustc 1.0, Envoy 1.40.0.",
            "| `cpu_vs_envoy` | 0.44 | 0.40–0.50 | 5 |",
            "| `heddle_cpu_us_per_request` | 35 µs | – | – |",
            "- left out: nginx, round 1",
            "- left out: envoy: memory_loaded: carried 4,277",
            "`mtls`: not measured yet.",
        ] {
            assert!(page.contains(line), "{line}\n{page}");
        }
        assert!(!page.contains("draft"));
    }

    #[test]
    fn a_draft_says_so_first() {
        let page = page(&Records::new(), true);
        assert!(
            page.starts_with("# Results\n\n**A draft: not for publication.**"),
            "{page}"
        );
    }
}
