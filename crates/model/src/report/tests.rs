use std::path::Path;

use super::*;

fn problem(severity: Severity, line: u32) -> Problem {
    Problem {
        severity,
        origin: Origin::file(Path::new("mesh/route.yaml")).at(line),
        object: Some("HTTPRoute shop/split".into()),
        field: "spec.rules[0].backendRefs".into(),
        reason: "there are 17".into(),
        remedy: "the Gateway API takes 16".into(),
        cause: None,
    }
}

#[test]
fn a_problem_reads_like_a_compiler_message() {
    assert_eq!(
        problem(Severity::Error, 12).to_string(),
        "mesh/route.yaml:12: error: HTTPRoute shop/split: spec.rules[0].backendRefs: \
         there are 17 (the Gateway API takes 16)"
    );
    let bare = Problem {
        origin: Origin::file(Path::new("mesh/route.yaml")),
        object: None,
        field: String::new(),
        remedy: String::new(),
        ..problem(Severity::Warning, 1)
    };
    assert_eq!(bare.to_string(), "mesh/route.yaml: warning: there are 17");
}

#[test]
fn a_report_is_bounded_and_still_counts() {
    let mut report = Report::default();
    for line in 0..600 {
        report.push(problem(Severity::Warning, line));
    }
    assert!(!report.has_errors());
    report.push(problem(Severity::Error, 1));
    assert!(report.has_errors());
    assert_eq!(
        (report.problems.len(), report.omitted, report.errors()),
        (500, 101, 1)
    );
}

#[test]
fn skipped_kinds_take_one_line() {
    let mut report = Report::default();
    assert_eq!(report.skipped_summary(), None);
    report.skipped.insert("Deployment".into(), 2);
    report.skipped.insert("ConfigMap".into(), 1);
    assert_eq!(
        report.skipped_summary().unwrap(),
        "skipped 3 objects of kinds that are not used: ConfigMap 1, Deployment 2"
    );
}

#[test]
fn errors_come_first_and_are_the_last_to_be_omitted() {
    let mut report = Report::default();
    for line in 0..600 {
        report.push(problem(Severity::Warning, line));
    }
    for line in 0..600 {
        report.push(problem(Severity::Error, 1_000 + line));
    }
    report.sort();
    assert_eq!((report.problems.len(), report.omitted), (500, 700));
    assert!(
        report
            .problems
            .iter()
            .all(|p| p.severity == Severity::Error)
    );

    let mut report = Report::default();
    report.push(problem(Severity::Warning, 1));
    report.push(problem(Severity::Error, 2));
    report.sort();
    assert_eq!(report.problems[0].severity, Severity::Error);
}

#[test]
fn nothing_from_a_file_reaches_the_terminal_as_a_command() {
    let hostile = Problem {
        origin: Origin::file(Path::new("mesh/a\u{1b}]0;title\u{7}.yaml")).at(1),
        object: Some("Service x/a\nb".into()),
        field: "spec.\u{9b}2J".into(),
        reason: "\r\u{202e}é\t\0".into(),
        ..problem(Severity::Error, 1)
    };
    assert_eq!(
        hostile.to_string(),
        "mesh/a\\u{1b}]0;title\\u{7}.yaml:1: error: Service x/a\\nb: spec.\\u{9b}2J: \
         \\r\\u{202e}é\t\\u{0} (the Gateway API takes 16)"
    );
    let mut report = Report::default();
    report.skipped.insert("Deploy\u{1b}[2J".into(), 1);
    assert!(!report.skipped_summary().unwrap().contains('\u{1b}'));
}

#[test]
fn an_origin_reads_like_a_place_and_is_a_file_in_json() {
    let file = Origin::file(Path::new("mesh/route.yaml"));
    let key = Origin::etcd("/heddle/v1/providers/shop/web/a");
    for (origin, shown, json) in [
        (
            &file.at(12),
            "mesh/route.yaml:12",
            r#"{"file":"mesh/route.yaml","line":12}"#,
        ),
        (
            &file,
            "mesh/route.yaml",
            r#"{"file":"mesh/route.yaml","line":null}"#,
        ),
        (
            &key.at(12),
            "etcd:/heddle/v1/providers/shop/web/a",
            r#"{"file":"etcd:/heddle/v1/providers/shop/web/a","line":null}"#,
        ),
    ] {
        assert_eq!(origin.to_string(), shown);
        assert_eq!(serde_json::to_string(origin).unwrap(), json);
    }
    let written = serde_json::to_string(&problem(Severity::Error, 12)).unwrap();
    let begins = r#"{"severity":"error","file":"mesh/route.yaml","line":12,"object":"#;
    assert!(written.starts_with(begins), "{written}");
}
