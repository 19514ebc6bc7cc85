use super::*;

fn sheet() -> Sheet {
    let mut sheet = Sheet::default();
    for (round, ours, theirs) in [(0, 10.0, 20.0), (1, 30.0, 30.0), (2, 10.0, 40.0)] {
        sheet.add("cpu", "link", "small", round, ours);
        sheet.add("cpu", "http1", "small", round, theirs);
    }
    sheet.add("cpu", "http1", "large", 0, 7.0);
    sheet.add("cpu", "link", "large", 1, 14.0);
    sheet
}

#[test]
fn ratios_are_of_rounds_that_both_have() {
    let sheet = sheet();
    let of = |cell| {
        let ratio = sheet.ratio("cpu", ("link", "http1"), cell);
        ratio.map(|ratio| ratio.median)
    };
    assert_eq!(of("small"), Some(0.5));
    assert_eq!(of("large"), None, "measured in other rounds");
    assert_eq!(of("none"), None);
    assert_eq!(
        sheet
            .spread("cpu", "http1", "small")
            .map(|spread| spread.median),
        Some(30.0)
    );
    assert_eq!(
        sheet
            .spread("p99", "http1", "small")
            .map(|spread| spread.median),
        None
    );
}

#[test]
fn what_is_not_a_number_is_left_out() {
    let mut sheet = Sheet::default();
    sheet.add("cpu", "link", "small", 0, f64::NAN);
    assert!(sheet.is_empty());
    sheet.add("cpu", "link", "small", 0, 1.0);
    assert!(!sheet.is_empty());
}

#[test]
fn a_table_has_the_rows_that_have_figures_in_the_order_given() {
    let mut sheet = sheet();
    sheet.add("qps", "link", "small", 0, 1.0);
    let table = sheet.table(&[("CPU µs", "cpu", 1), ("p99", "p99", 0)]);
    let lines: Vec<&str> = table.lines().collect();
    assert_eq!(lines.len(), 5, "{table}");
    assert!(lines[0].starts_with("  cell   system"), "{table}");
    let first: Vec<&str> = lines[1].split_ascii_whitespace().collect();
    assert_eq!(first, ["small", "link", "10.0", "[10.0–30.0]", "–"]);
    assert!(lines[4].contains("http1") && lines[4].contains("7.0"));
    assert_eq!(sheet.table(&[("QPS", "qps", 0)]).lines().count(), 2);
    assert_eq!(sheet.rows().len(), 5);
}
