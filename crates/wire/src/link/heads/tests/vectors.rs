//! Runs the vectors in `vectors/link/heads`, which other implementations can use too.

use std::fs;
use std::path::Path;

use super::*;

/// A statement of a vector file, with its operands.
#[derive(Default)]
struct Statement {
    line: usize,
    keyword: String,
    bytes: Vec<u8>,
    /// Words that are neither hexadecimal nor text, and all words of `session`.
    words: Vec<String>,
}

fn statements(text: &str) -> Vec<Statement> {
    let mut statements: Vec<Statement> = Vec::new();
    for (number, line) in text.lines().enumerate() {
        let mut rest = line;
        if !line.starts_with([' ', '#']) && !line.is_empty() {
            let (keyword, more) = line.split_once(' ').unwrap_or((line, ""));
            rest = more;
            statements.push(Statement {
                line: number + 1,
                keyword: keyword.to_owned(),
                ..Statement::default()
            });
        }
        while let Some(statement) = statements.last_mut() {
            rest = rest.trim_start();
            if rest.is_empty() || rest.starts_with('#') {
                break;
            } else if let Some(text) = rest.strip_prefix('"') {
                rest = unquote(text, &mut statement.bytes);
                continue;
            }
            let (word, more) = rest.split_once(' ').unwrap_or((rest, ""));
            match u8::from_str_radix(word, 16) {
                Ok(byte) if word.len() == 2 && statement.keyword == "block" => {
                    statement.bytes.push(byte);
                }
                _ => statement.words.push(word.to_owned()),
            }
            rest = more;
        }
    }
    statements
}

/// Appends text up to its closing quote, and returns the rest.
fn unquote<'a>(text: &'a str, out: &mut Vec<u8>) -> &'a str {
    let mut rest = text;
    loop {
        let end = rest.find(['"', '\\']).expect("a closing quote");
        out.extend_from_slice(&rest.as_bytes()[..end]);
        if rest.as_bytes()[end] == b'"' {
            return &rest[end + 1..];
        }
        let escaped = rest.as_bytes()[end + 1];
        rest = &rest[end + 2..];
        out.push(match escaped {
            b'r' => b'\r',
            b'n' => b'\n',
            b't' => b'\t',
            b'x' => {
                let byte = u8::from_str_radix(&rest[..2], 16).expect("two digits");
                rest = &rest[2..];
                byte
            }
            other => other,
        });
    }
}

fn word(error: HeadError) -> &'static str {
    match error {
        HeadError::Cut => "cut",
        HeadError::Number => "number",
        HeadError::Instruction => "instruction",
        HeadError::Over => "over",
        HeadError::NoTemplate => "no-template",
        HeadError::Full => "full",
        HeadError::Template(_) => "template",
        HeadError::Value(_) => "value",
        HeadError::TooLong => "too-long",
        HeadError::Head(_) => "head",
    }
}

fn limits(words: &[String]) -> HeadLimits {
    let numbers: Vec<u32> = words.iter().map(|word| word.parse().unwrap()).collect();
    match numbers[..] {
        [] => HeadLimits::DEFAULT,
        [templates, template_bytes, all_bytes, max_head_bytes] => HeadLimits {
            templates: templates.try_into().unwrap(),
            template_bytes,
            all_bytes,
            max_head_bytes,
        },
        _ => panic!("four limits"),
    }
}

/// Runs a file and returns the number of its blocks.
fn run(path: &Path) -> usize {
    let text = fs::read_to_string(path).unwrap();
    let mut decoder = Decoder::new(&HeadLimits::DEFAULT);
    let mut blocks = 0;
    // The result of the last block.
    let mut said = Err(HeadError::Cut);
    let mut head = Vec::new();
    for statement in statements(&text) {
        let place = format!("{}:{}", path.display(), statement.line);
        match statement.keyword.as_str() {
            "session" => decoder = Decoder::new(&limits(&statement.words)),
            "block" => {
                assert!(statement.words.is_empty(), "{place}: {:?}", statement.words);
                blocks += 1;
                head.clear();
                said = decoder
                    .decode(&statement.bytes, &mut head)
                    .map(|decoded| (decoded.destination.to_vec(), decoded.destination_id));
            }
            "destination" => {
                let id = statement.words[0].parse().ok();
                assert_eq!(said, Ok((statement.bytes, id)), "{place}");
            }
            "head" => assert_eq!(
                String::from_utf8_lossy(&head),
                String::from_utf8_lossy(&statement.bytes),
                "{place}"
            ),
            "refused" => {
                let error = *said.as_ref().expect_err(&place);
                assert_eq!(word(error), statement.words[0], "{place}: {error}");
            }
            other => panic!("{place}: {other}"),
        }
    }
    blocks
}

#[test]
fn vectors() {
    let dir = Path::new(env!("CARGO_MANIFEST_DIR")).join("vectors/link/heads");
    let mut blocks = 0;
    for entry in fs::read_dir(dir).unwrap() {
        let path = entry.unwrap().path();
        if path.extension().is_some_and(|extension| extension == "txt") {
            blocks += run(&path);
        }
    }
    assert!(blocks >= 30, "{blocks}");
}
