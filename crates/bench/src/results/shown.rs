//! How a figure is written, the same in every page.

use super::record::{Record, RecordedFigure};

/// The text in place of a figure that is not measured yet.
pub(super) const NOT_YET: &str = "not measured yet";

/// A figure as text: ratios with two decimals; others with three digits or more, thousands apart, whole numbers as they
/// are.
pub(super) fn figure(figure: &RecordedFigure) -> String {
    number(figure.value, decimals(figure))
}

/// The same, with the lowest and the highest round.
pub(super) fn with_spread(figure: &RecordedFigure) -> String {
    let decimals = decimals(figure);
    let median = number(figure.value, decimals);
    match figure.spread {
        Some(spread) => {
            let (min, max) = (number(spread.min, decimals), number(spread.max, decimals));
            format!("{median} [{min}–{max}]")
        }
        None => median,
    }
}

/// The unit that a name ends with.
pub(super) fn unit(name: &str, figure: &RecordedFigure) -> &'static str {
    if figure.is_ratio {
        return "";
    }
    let name = name.trim_end_matches("_per_request");
    let units = [
        ("_us", "µs"),
        ("_ms", "ms"),
        ("_per_s", "/s"),
        ("_s", "s"),
        ("_mib", "MiB"),
        ("_kib", "KiB"),
        ("_bytes", "B"),
    ];
    let found = units.iter().find(|(end, _)| name.ends_with(end));
    found.map_or("", |(_, unit)| unit)
}

/// The first digits of a record's commit.
pub(super) fn commit(record: &Record) -> String {
    record.origin.commit.chars().take(8).collect()
}

fn decimals(figure: &RecordedFigure) -> usize {
    match figure.value.abs() {
        _ if figure.is_ratio => 2,
        value if value.fract() == 0.0 => 0,
        100.0.. => 0,
        10.0.. => 1,
        _ => 2,
    }
}

fn number(value: f64, decimals: usize) -> String {
    let text = format!("{value:.decimals$}");
    let (whole, rest) = text.split_at(text.find('.').unwrap_or(text.len()));
    let (sign, digits) = whole.split_at(usize::from(whole.starts_with('-')));
    let mut grouped = String::new();
    for (index, digit) in digits.chars().enumerate() {
        if index > 0 && (digits.len() - index).is_multiple_of(3) {
            grouped.push(',');
        }
        grouped.push(digit);
    }
    format!("{sign}{grouped}{rest}")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::results::record::RoundSpread;

    fn plain(value: f64, is_ratio: bool) -> RecordedFigure {
        RecordedFigure {
            value,
            is_ratio,
            spread: None,
        }
    }

    #[test]
    fn a_figure_has_as_many_digits_as_it_needs() {
        for (value, is_ratio, expected) in [
            (0.4444, true, "0.44"),
            (1.0, true, "1.00"),
            (12_514.4, false, "12,514"),
            (1_234_567.0, false, "1,234,567"),
            (17.34, false, "17.3"),
            (4.104, false, "4.10"),
            (0.0, false, "0"),
            (-1_234.5, false, "-1,234"),
        ] {
            assert_eq!(figure(&plain(value, is_ratio)), expected);
        }
    }

    #[test]
    fn a_spread_stands_beside_its_figure() {
        let spread = Some(RoundSpread {
            min: 0.4,
            max: 0.5,
            rounds: 5,
        });
        let figure = RecordedFigure {
            spread,
            ..plain(0.44, true)
        };
        assert_eq!(with_spread(&figure), "0.44 [0.40–0.50]");
    }

    #[test]
    fn a_unit_is_in_the_name() {
        let figure = plain(1.0, false);
        for (name, expected) in [
            ("heddle_cpu_us_per_request", "µs"),
            ("half_core_requests_per_s", "/s"),
            ("steps_grow_worst_s", "s"),
            ("memory_mib", "MiB"),
            ("failed", ""),
        ] {
            assert_eq!(unit(name, &figure), expected, "{name}");
        }
        assert_eq!(unit("cpu_us", &plain(1.0, true)), "");
    }
}
