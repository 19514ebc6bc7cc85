//! The report on a terminal.

use super::report::{Measure, Report, Row};
use super::statistics::Spread;

/// The title of a column, and its text for a row.
type Cells = (&'static str, fn(&Row) -> String);

/// Prints the whole report.
pub(super) fn print(report: &Report) {
    let machine = &report.machine;
    println!(
        "{} × {}, {} MiB, Linux {}, TCP {}",
        machine.cores, machine.cpu, machine.memory_mib, machine.kernel, machine.congestion_control
    );
    let versions: Vec<String> = report
        .versions
        .iter()
        .map(|(name, version)| format!("{name} {version}"))
        .collect();
    println!("{}", versions.join(" · "));
    println!(
        "Main cell: {}; medians, in brackets the spread over the rounds.",
        report.main
    );
    for (title, measure, columns) in sections() {
        let rows: Vec<&Row> = report
            .rows
            .iter()
            .filter(|row| row.measure == measure)
            .collect();
        if rows.is_empty() {
            continue;
        }
        println!("\n{title}");
        print!("{}", layout(&rows, &columns));
    }
    if !report.ratio_spreads.is_empty() {
        println!("\nRatios, round by round (below 1 is better, for rps above 1)");
        for (name, spread) in &report.ratio_spreads {
            println!("  {name:<24} {}", with_spread(spread, 2));
        }
    }
    for note in &report.notes {
        println!("\nNote: {note}.");
    }
}

fn sections() -> Vec<(&'static str, Measure, Vec<Cells>)> {
    let memory: Vec<Cells> = vec![
        ("RSS MiB", |row| figure(row, "rss_mib", 1)),
        ("PSS MiB", |row| plain(row, "pss_mib", 1)),
        ("private MiB", |row| plain(row, "private_mib", 1)),
    ];
    let calls: Vec<Cells> = vec![("calls/request", |row| {
        figure(row, "system_calls_per_request", 2)
    })];
    let throughput: Vec<Cells> = vec![
        ("requests/s", |row| figure(row, "requests_per_s", 0)),
        ("CPU µs/request", |row| plain(row, "cpu_us_per_request", 2)),
        ("p50 µs", |row| plain(row, "p50_us", 0)),
        ("p99 µs", |row| plain(row, "p99_us", 0)),
        ("busy: proxy", |row| percent(row, "proxy_cores")),
        ("client", |row| percent(row, "client_cores")),
        ("upstream", |row| percent(row, "upstream_cores")),
        ("core 0", |row| percent(row, "core_0_busy")),
        ("core 1", |row| percent(row, "core_1_busy")),
        ("RSS MiB", |row| plain(row, "rss_mib", 1)),
        ("PSS MiB", |row| plain(row, "pss_mib", 1)),
        ("private MiB", |row| plain(row, "private_mib", 1)),
    ];
    let mut fixed: Vec<Cells> = vec![
        ("offered/s", |row| {
            row.offered_per_s
                .map_or("–".to_owned(), |rate| format!("{rate:.0}"))
        }),
        ("CPU µs/request", |row| {
            figure(row, "cpu_us_per_request", 2)
        }),
        ("of it user", |row| plain(row, "cpu_user_us_per_request", 2)),
    ];
    fixed.extend_from_slice(&throughput[2..]);
    vec![
        (
            "The same offered rate for all",
            Measure::FixedRate,
            fixed.clone(),
        ),
        (
            "A lower rate for all, at which no proxy is busy",
            Measure::QuietRate,
            fixed,
        ),
        (
            "As fast as it goes, the proxy held to half a core",
            Measure::HalfCore,
            throughput.clone(),
        ),
        (
            "As fast as it goes, a whole core (client or upstream may be the limit)",
            Measure::WholeCore,
            throughput,
        ),
        (
            "System calls, as fast as it goes",
            Measure::SystemCallsBusy,
            calls.clone(),
        ),
        (
            "System calls, at the fixed rate",
            Measure::SystemCallsFixedRate,
            calls,
        ),
        (
            "User instructions (cachegrind)",
            Measure::Instructions,
            vec![("per request", |row| {
                figure(row, "user_instructions_per_request", 0)
            })],
        ),
        (
            "Memory after start, one endpoint",
            Measure::MemoryIdle,
            memory.clone(),
        ),
        (
            "Memory after start, 1,000 endpoints",
            Measure::MemoryConfigured,
            memory.clone(),
        ),
        (
            "Memory, 1,000 endpoints and 500 connections",
            Measure::MemoryLoaded,
            memory,
        ),
    ]
}

fn layout(rows: &[&Row], columns: &[Cells]) -> String {
    let mut lines = vec![vec!["system".to_owned(), "connections × body".to_owned()]];
    lines[0].extend(columns.iter().map(|(title, _)| (*title).to_owned()));
    for row in rows {
        let mut line = vec![row.system.clone(), row.cell.to_string()];
        line.extend(columns.iter().map(|(_, text)| text(row)));
        lines.push(line);
    }
    let widths: Vec<usize> = (0..columns.len() + 2)
        .map(|column| {
            lines
                .iter()
                .map(|line| line[column].chars().count())
                .max()
                .unwrap_or(0)
        })
        .collect();
    let problems = std::iter::once(None).chain(rows.iter().map(|row| problem(row)));
    let mut text = String::new();
    for (line, problem) in lines.iter().zip(problems) {
        for (column, (cell, &width)) in line.iter().zip(&widths).enumerate() {
            let padding = " ".repeat(width - cell.chars().count());
            // names to the left, figures to the right
            let cell = if column < 2 {
                format!("  {cell}{padding}")
            } else {
                format!("  {padding}{cell}")
            };
            text.push_str(&cell);
        }
        if let Some(problem) = problem {
            text.push_str(&problem);
        }
        text.push('\n');
    }
    text
}

/// A remark on a row that a reader has to know before using it.
fn problem(row: &Row) -> Option<String> {
    let problem = row.problem.as_ref()?;
    Some(if row.valid {
        format!("  ({} round(s) left out: {problem})", row.invalid_rounds)
    } else {
        format!("  INVALID: {problem}")
    })
}

fn figure(row: &Row, name: &str, decimals: usize) -> String {
    row.figures
        .get(name)
        .map_or("–".to_owned(), |spread| with_spread(spread, decimals))
}

fn with_spread(spread: &Spread, decimals: usize) -> String {
    let Spread {
        median,
        min,
        max,
        rounds,
    } = spread;
    if rounds.len() == 1 {
        return format!("{median:.decimals$}");
    }
    format!("{median:.decimals$} [{min:.decimals$}–{max:.decimals$}]")
}

fn plain(row: &Row, name: &str, decimals: usize) -> String {
    row.figures.get(name).map_or("–".to_owned(), |spread| {
        format!("{:.decimals$}", spread.median)
    })
}

fn percent(row: &Row, name: &str) -> String {
    row.figures.get(name).map_or("–".to_owned(), |spread| {
        format!("{:.0} %", spread.median * 100.0)
    })
}

#[cfg(test)]
mod tests;
