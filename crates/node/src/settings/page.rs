//! `docs/settings.md`: its block of YAML is generated from the fields of the settings. Their comments become the comments
//! of the page, their types the ranges, and [`Settings::default`] the values.

mod declared;

use std::fmt::Write;
use std::path::Path;

use serde_json::Value;
use syn::Field;

use self::declared::{Declared, paragraphs};
use super::{GivenSettings, Settings};

const PAGE: &str = include_str!("../../../../docs/settings.md");
const BEGINS: &str =
    "<!-- generated from the fields in crates/node/src/settings, not by hand -->\n";
const ENDS: &str = "<!-- end of the fields -->\n";
/// The last paragraph of a field's comment begins like this where the type does not tell which values there are. The
/// page has it beside the default.
const VALUES: &str = "Values: ";
/// Columns of the page.
const WIDTH: usize = 120;

/// The block of YAML.
struct Block {
    declared: Declared,
    yaml: String,
    /// Fields of which the page says which values they take, by their paths.
    values: Vec<(String, String)>,
}

impl Block {
    fn of_now() -> Self {
        let mut block = Block {
            declared: Declared::read(),
            yaml: String::new(),
            values: Vec::new(),
        };
        let defaults = serde_json::to_value(Settings::default()).expect("JSON");
        block.section("Settings", "", 0, &defaults);
        block
    }

    /// Adds the fields of a section, of which `path` is the beginning of their paths. A section has an empty line before
    /// and after it.
    fn section(&mut self, name: &str, path: &str, indent: usize, defaults: &Value) {
        let fields = self.declared.sections[name].clone();
        let written = defaults.as_object().expect("a mapping");
        assert_eq!(written.len(), fields.len(), "each field of {name} is there");
        let mut was_section = None;
        for field in fields {
            let kind = self.declared.resolved(&field.ty).clone();
            let section = kind.ident.to_string();
            let is_section = self.declared.sections.contains_key(&section);
            if was_section.is_some_and(|was_section| was_section || is_section) {
                self.yaml.push('\n');
            }
            was_section = Some(is_section);

            let name = field.ident.as_ref().expect("a name").to_string();
            let default = written.get(&name).expect("a field with its own name");
            let path = format!("{path}{name}");
            let values = self.comments(&field, indent);
            if is_section {
                self.line(indent, &format!("{name}:"));
                self.section(&section, &format!("{path}."), indent + 2, default);
                continue;
            }
            let mut line = match default {
                Value::String(text) => format!("{name}: {text}"),
                other => format!("{name}: {other}"),
            };
            if let Some(values) = values.or_else(|| self.declared.values(&kind)) {
                write!(line, "  # {values}").expect("a string");
                self.values.push((path, values));
            }
            self.line(indent, &line);
        }
    }

    /// Adds a field's comment, and returns which values that says there are.
    fn comments(&mut self, field: &Field, indent: usize) -> Option<String> {
        let mut paragraphs = paragraphs(field);
        let values = paragraphs.pop_if(|last| last.starts_with(VALUES));
        assert!(!paragraphs.is_empty(), "{:?} has no comment", field.ident);
        for paragraph in &paragraphs {
            self.comment(indent, paragraph);
        }
        let values = values?;
        let values = values[VALUES.len()..].trim_end_matches('.');
        Some(values.replace('`', ""))
    }

    fn line(&mut self, indent: usize, text: &str) {
        writeln!(self.yaml, "{:indent$}{text}", "").expect("a string");
    }

    /// Adds a comment, broken into lines of the page's width.
    fn comment(&mut self, indent: usize, text: &str) {
        let mut line = "#".to_owned();
        for word in text.split_whitespace() {
            if indent + line.len() + 1 + word.len() > WIDTH {
                self.line(indent, &line);
                line = "#".to_owned();
            }
            line = line + " " + word;
        }
        self.line(indent, &line);
    }
}

/// The page as it should be, with this block.
fn page(yaml: &str) -> String {
    let (before, rest) = PAGE.split_once(BEGINS).expect("the first mark");
    let (_, after) = rest.split_once(ENDS).expect("the second mark");
    format!("{before}{BEGINS}```yaml\n{yaml}```\n{ENDS}{after}")
}

fn parse(text: &str) -> Option<Settings> {
    let given = GivenSettings::parse(Path::new("s.yaml"), text.to_owned());
    given.ok()?.checked().ok()
}

#[test]
fn the_page_of_settings_has_the_fields_of_now() {
    let yaml = Block::of_now().yaml;
    assert_eq!(parse(&yaml), Some(Settings::default()), "{yaml}");
    assert!(
        page(&yaml) == PAGE,
        "docs/settings.md is old: cargo test -p heddle-node the_page_of_settings_is_written -- --ignored"
    );
}

/// Writes the page anew: `cargo test -p heddle-node the_page_of_settings_is_written -- --ignored`.
#[test]
#[ignore = "writes docs/settings.md"]
fn the_page_of_settings_is_written() {
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/settings.md");
    std::fs::write(path, page(&Block::of_now().yaml)).expect("written");
}

/// A file that sets one field.
fn file(path: &str, value: &str) -> String {
    let opened = path.replace('.', ": {");
    let closed = "}".repeat(path.matches('.').count());
    format!("{opened}: {value}{closed}\n")
}

#[test]
fn each_range_on_the_page_is_the_one_that_is_read() {
    let mut ranges = 0;
    for (path, values) in Block::of_now().values {
        // Other fields may contradict a value within the range.
        let is_read =
            |value: &str| GivenSettings::parse(Path::new("s.yaml"), file(&path, value)).is_ok();
        let is_refused = |value: u64| parse(&file(&path, &value.to_string())).is_none();
        let range = values.trim_start_matches("0, or ").split_once(" to ");
        let range =
            range.and_then(|(min, max)| Some((min.parse::<u64>().ok()?, max.parse::<u64>().ok()?)));
        if let Some((min, max)) = range {
            ranges += 1;
            assert!(
                is_read(&min.to_string()) && is_read(&max.to_string()),
                "{path}: {values}"
            );
            assert!(is_refused(max + 1), "{path}: {values}");
            assert!(min == 0 || is_refused(min - 1), "{path}: {values}");
        }
        let words: Vec<&str> = values
            .split(", ")
            .flat_map(|words| words.split(" or "))
            .collect();
        let is_word = |word: &&str| {
            word.chars()
                .all(|letter| letter.is_ascii_lowercase() || letter.is_ascii_digit())
        };
        if words.len() > 1 && words.iter().all(is_word) {
            ranges += 1;
            assert!(
                words.iter().all(|word| is_read(word)) && !is_read("other"),
                "{path}: {values}"
            );
        }
    }
    assert!(ranges > 40, "{ranges}");
}
