//! The record of a part: the report of its experiment, and what it was measured with.

use std::collections::BTreeMap;
use std::fmt::Write;
use std::fs;
use std::path::Path;

use anyhow::Context;
use serde::{Deserialize, Serialize};
use serde_json::Value;

/// Maximum size of a report on record, in bytes: a repository keeps every version.
const MAX_BYTES: usize = 192 << 10;
/// Maximum length of a list within a row. Longer ones are samples, not figures, and are left out.
const MAX_LIST: usize = 32;
/// Significant digits that are kept.
const DIGITS: i32 = 6;

/// The report of a part with its circumstances, as `docs/results/PART.json` has it.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(super) struct Record {
    pub(super) part: String,
    #[serde(flatten)]
    pub(super) origin: Origin,
    pub(super) took_s: u64,
    pub(super) versions: BTreeMap<String, String>,
    pub(super) report: Value,
}

/// The programs that were measured, and the kind of run.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Origin {
    pub(super) commit: String,
    /// A hash of the files that the programs are built from: see [`super::repository`].
    pub(super) tree: String,
    pub(super) date: String,
    pub(super) compiler: String,
    /// Measured from files that differ from the commit, or with programs from elsewhere: not for publication.
    pub(super) draft: bool,
    pub(super) quick: bool,
    /// With windows as long as in the publication that an experiment repeats.
    pub(super) published: bool,
}

#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct RecordedFigure {
    pub(super) value: f64,
    pub(super) is_ratio: bool,
    pub(super) spread: Option<RoundSpread>,
}

/// The lowest and the highest of some rounds.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct RoundSpread {
    pub(super) min: f64,
    pub(super) max: f64,
    pub(super) rounds: u64,
}

impl Record {
    /// The record of a part in a folder, if there is one.
    ///
    /// # Errors
    /// When it cannot be read, or is not a record of that part.
    pub(super) fn read(folder: &Path, part: &str) -> anyhow::Result<Option<Record>> {
        let file = folder.join(format!("{part}.json"));
        if !file.exists() {
            return Ok(None);
        }
        let text = fs::read_to_string(&file).with_context(|| format!("{}", file.display()))?;
        let record = serde_json::from_str::<Record>(&text);
        let record = record.with_context(|| format!("{} is not a record", file.display()))?;
        anyhow::ensure!(
            record.part == part,
            "{} is the record of {}",
            file.display(),
            record.part
        );
        Ok(Some(record))
    }

    /// Writes the record into a folder. The file is replaced at once, so that it is never incomplete.
    ///
    /// # Errors
    /// When it cannot be written.
    pub(super) fn write(&self, folder: &Path) -> anyhow::Result<()> {
        let file = folder.join(format!("{}.json", self.part));
        let text = text_of(&serde_json::to_value(self)?)?;
        let unfinished = file.with_extension("json.part");
        fs::write(&unfinished, text).with_context(|| format!("{}", unfinished.display()))?;
        fs::rename(&unfinished, &file).with_context(|| format!("{}", file.display()))
    }

    /// A figure of its report.
    pub(super) fn figure(&self, name: &str) -> Option<RecordedFigure> {
        let of = |kind: &str, is_ratio| {
            let value = self.report.get(kind)?.get(name)?.as_f64()?;
            Some((value, is_ratio))
        };
        let (value, is_ratio) = of("ratios", true).or_else(|| of("values", false))?;
        let spreads = if is_ratio {
            "ratio_spreads"
        } else {
            "value_spreads"
        };
        let spread = self.report.get(spreads).and_then(|all| all.get(name));
        Some(RecordedFigure {
            value,
            is_ratio,
            spread: spread.and_then(RoundSpread::of),
        })
    }

    /// The names of all figures, ratios first.
    pub(super) fn names(&self) -> Vec<&str> {
        let of = |kind: &str| self.report.get(kind).and_then(Value::as_object);
        let all = [of("ratios"), of("values")].into_iter().flatten();
        all.flat_map(|figures| figures.keys().map(String::as_str))
            .collect()
    }

    /// The sentences in a list of its report.
    pub(super) fn said(&self, kind: &str) -> Vec<&str> {
        let all = self.report.get(kind).and_then(Value::as_array);
        all.into_iter()
            .flatten()
            .filter_map(Value::as_str)
            .collect()
    }

    /// Why the record does not count: the experiment says so, or a row of Heddle has no valid round.
    pub(super) fn invalid(&self) -> Vec<String> {
        let said = self.said("invalid").into_iter().map(str::to_owned);
        let ours = |row: &&(String, String)| matches!(row.0.as_str(), "heddle" | "h2");
        let rows = self.invalid_rows();
        let rows = rows.iter().filter(ours);
        said.chain(rows.map(|(system, why)| format!("{system}: {why}")))
            .collect()
    }

    /// Rows without a valid round: the system, and why.
    pub(super) fn invalid_rows(&self) -> Vec<(String, String)> {
        let rows = self.report.get("rows").and_then(Value::as_array);
        let rows = rows.into_iter().flatten();
        let invalid = rows.filter(|row| row.get("valid") == Some(&Value::Bool(false)));
        let text = |row: &Value, name: &str| {
            let value = row.get(name)?;
            Some(
                value
                    .as_str()
                    .map_or_else(|| value.to_string(), str::to_owned),
            )
        };
        let told = |row: &Value| {
            let cell = ["measure", "connections", "body_bytes"].map(|name| text(row, name));
            let cell: Vec<String> = cell.into_iter().flatten().collect();
            let why = text(row, "problem").unwrap_or_default();
            let system = text(row, "system").unwrap_or_default();
            (system, format!("{}: {why}", cell.join(", ")))
        };
        invalid.map(told).collect()
    }

    /// Why the record may not be published.
    pub(super) fn objections(&self) -> Vec<&'static str> {
        let is_quick = self.origin.quick || self.report.get("quick") == Some(&Value::Bool(true));
        [
            (self.origin.commit.is_empty(), "it names no commit"),
            (is_quick, "it is of a quick run"),
            (self.origin.draft, "it is a draft"),
        ]
        .into_iter()
        .filter_map(|(holds, why)| holds.then_some(why))
        .collect()
    }

    /// Why the part has to be measured again for `now`; `None` if the record is still good.
    pub(super) fn stale(&self, now: &Origin, has_published: bool) -> Option<&'static str> {
        if self.origin.tree != now.tree {
            return Some("the programs have changed since");
        }
        if (self.origin.draft, self.origin.quick) != (now.draft, now.quick) {
            return Some("it was measured with other options: --draft or --quick");
        }
        if has_published && self.origin.published != now.published {
            return Some("its windows were of another length");
        }
        (!self.invalid().is_empty()).then_some("its result is invalid")
    }
}

impl RoundSpread {
    fn of(spread: &Value) -> Option<RoundSpread> {
        let number = |name: &str| spread.get(name)?.as_f64();
        let rounds = spread.get("rounds")?;
        Some(RoundSpread {
            min: number("min")?,
            max: number("max")?,
            rounds: rounds
                .as_u64()
                .or_else(|| Some(rounds.as_array()?.len() as u64))?,
        })
    }
}

/// A report as it is recorded: spreads without their single rounds, figures without insignificant digits, and no rows
/// if the report is too large with them.
pub(super) fn slim(report: Value) -> anyhow::Result<Value> {
    let mut report = slimmed(report);
    if text_of(&report)?.len() > MAX_BYTES
        && let Some(kept) = report.as_object_mut()
    {
        kept.insert("rows".to_owned(), Value::Array(Vec::new()));
        kept.insert("rows_left_out".to_owned(), Value::Bool(true));
    }
    Ok(report)
}

fn slimmed(value: Value) -> Value {
    match value {
        Value::Object(fields) => {
            let is_spread =
                ["median", "min", "max", "rounds"].map(|name| fields.contains_key(name));
            let is_spread = is_spread == [true; 4];
            let fields = fields.into_iter().map(|(name, value)| match value {
                Value::Array(rounds) if is_spread && name == "rounds" => {
                    (name, Value::from(rounds.len()))
                }
                Value::Array(list) if name != "rows" && list.len() > MAX_LIST => {
                    (name, Value::String(format!("{} left out", list.len())))
                }
                value => (name, slimmed(value)),
            });
            Value::Object(fields.collect())
        }
        Value::Array(list) => list.into_iter().map(slimmed).collect(),
        Value::Number(number) if number.is_f64() => {
            let number = number.as_f64().unwrap_or_default();
            Value::from(to_digits(number))
        }
        value => value,
    }
}

fn to_digits(number: f64) -> f64 {
    if number == 0.0 || !number.is_finite() {
        return number;
    }
    // Through text, so that no digits of binary fractions remain.
    let digits = usize::try_from(DIGITS - 1).unwrap_or_default();
    format!("{number:.digits$e}").parse().unwrap_or(number)
}

/// JSON with a line for each field and for each element of a list, so that a change shows where it is.
fn text_of(value: &Value) -> anyhow::Result<String> {
    let mut text = String::new();
    lines(value, 0, &mut text)?;
    text.push('\n');
    Ok(text)
}

fn lines(value: &Value, depth: usize, text: &mut String) -> anyhow::Result<()> {
    let inner = "  ".repeat(depth + 1);
    let outer = "  ".repeat(depth);
    match value {
        Value::Object(fields) if depth < 2 && !fields.is_empty() => {
            text.push_str("{\n");
            for (index, (name, value)) in fields.iter().enumerate() {
                let comma = if index == 0 { "" } else { ",\n" };
                write!(text, "{comma}{inner}{}: ", serde_json::to_string(name)?)?;
                lines(value, depth + 1, text)?;
            }
            write!(text, "\n{outer}}}")?;
        }
        Value::Object(fields) if depth == 2 && fields.values().any(Value::is_object) => {
            text.push_str("{\n");
            for (index, (name, value)) in fields.iter().enumerate() {
                let comma = if index == 0 { "" } else { ",\n" };
                let value = serde_json::to_string(value)?;
                write!(
                    text,
                    "{comma}{inner}{}: {value}",
                    serde_json::to_string(name)?
                )?;
            }
            write!(text, "\n{outer}}}")?;
        }
        Value::Array(list) if depth <= 2 && !list.is_empty() => {
            text.push_str("[\n");
            for (index, value) in list.iter().enumerate() {
                let comma = if index == 0 { "" } else { ",\n" };
                write!(text, "{comma}{inner}{}", serde_json::to_string(value)?)?;
            }
            write!(text, "\n{outer}]")?;
        }
        value => text.push_str(&serde_json::to_string(value)?),
    }
    Ok(())
}

#[cfg(test)]
pub(super) mod tests {
    use serde_json::json;

    use super::*;

    /// A record as a full run leaves it.
    pub(in crate::results) fn record(part: &str, report: Value) -> Record {
        Record {
            part: part.to_owned(),
            origin: Origin {
                commit: "c0ffee0123456789".to_owned(),
                tree: "tree".to_owned(),
                date: "2026-01-02".to_owned(),
                compiler: "rustc 1.0".to_owned(),
                ..Origin::default()
            },
            took_s: 60,
            versions: BTreeMap::new(),
            report,
        }
    }

    #[test]
    fn a_record_is_read_as_it_was_written_and_keeps_spreads_without_rounds() {
        let dir = tempfile::tempdir().unwrap();
        let spread =
            json!({"median": 1.0 / 3.0, "min": 0.3, "max": 0.4, "rounds": [0.3, 1.0 / 3.0, 0.4]});
        let report = json!({
            "quick": false,
            "rows": [{"figures": {"cpu": spread}, "workers": vec![0.5; 100]}],
            "ratios": {"cpu_vs_envoy": 1.0 / 3.0},
            "ratio_spreads": {"cpu_vs_envoy": spread},
            "values": {"failed": 0.0},
        });
        let written = record("proxy", slim(report).unwrap());
        written.write(dir.path()).unwrap();
        let read = Record::read(dir.path(), "proxy").unwrap().unwrap();
        assert_eq!(read.report, written.report);
        assert_eq!(read.report["rows"][0]["workers"], "100 left out");
        let figure = read.figure("cpu_vs_envoy").unwrap();
        assert_eq!(figure.value, 0.333333);
        let spread = figure.spread.unwrap();
        assert_eq!((spread.min, spread.max, spread.rounds), (0.3, 0.4, 3));
        assert_eq!(read.figure("failed").unwrap().value, 0.0);
        assert_eq!(read.figure("other"), None);
        assert_eq!(read.names(), ["cpu_vs_envoy", "failed"]);
        assert!(Record::read(dir.path(), "mtls").unwrap().is_none());
    }

    #[test]
    fn a_report_with_too_many_rows_keeps_its_figures() {
        let row = json!({"text": "x".repeat(1000)});
        let report = json!({"rows": vec![row; 400], "ratios": {"a": 1.5}});
        let slim = slim(report).unwrap();
        assert_eq!(slim["rows_left_out"], true);
        assert_eq!(slim["ratios"]["a"], 1.5);
    }

    #[test]
    fn a_record_stands_until_the_programs_change() {
        let record = record("proxy", json!({"rows": []}));
        let now = record.origin.clone();
        assert_eq!(record.stale(&now, false), None);
        let later = Origin {
            commit: "other".to_owned(),
            date: "later".to_owned(),
            ..now.clone()
        };
        assert_eq!(record.stale(&later, false), None);
        let changed = Origin {
            tree: "other".to_owned(),
            ..now.clone()
        };
        assert!(record.stale(&changed, false).is_some());
        let quick = Origin {
            quick: true,
            ..now.clone()
        };
        assert!(record.stale(&quick, false).is_some());
        let published = Origin {
            published: true,
            ..now
        };
        assert_eq!(record.stale(&published, false), None);
        assert!(record.stale(&published, true).is_some());
    }

    #[test]
    fn an_invalid_row_of_heddle_does_not_count_one_of_a_peer_is_told() {
        let row = |system: &str| json!({"system": system, "measure": "half_core", "connections": 1, "valid": false, "problem": "slow"});
        let ours = record("proxy", json!({"rows": [row("heddle")]}));
        assert_eq!(ours.invalid(), ["heddle: half_core, 1: slow"]);
        assert!(ours.stale(&ours.origin, false).is_some());
        let theirs = record("proxy", json!({"rows": [row("envoy")]}));
        assert!(theirs.invalid().is_empty());
        assert_eq!(theirs.invalid_rows().len(), 1);
        let said = record("concurrency", json!({"invalid": ["a wrong hash"]}));
        assert_eq!(said.invalid(), ["a wrong hash"]);
    }

    #[test]
    fn quick_runs_drafts_and_what_names_no_commit_are_not_for_publication() {
        let good = record("proxy", json!({"quick": false}));
        assert!(good.objections().is_empty());
        let mut draft = good.clone();
        draft.origin.draft = true;
        let mut anonymous = good;
        anonymous.origin.commit.clear();
        let quick = record("proxy", json!({"quick": true}));
        for record in [draft, anonymous, quick] {
            assert_eq!(record.objections().len(), 1, "{record:?}");
        }
    }
}
