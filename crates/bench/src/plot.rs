//! The main figures as bars: one panel each, one bar a system, whiskers for the spread.

use std::path::Path;

use anyhow::{Context, anyhow};
use plotters::prelude::*;

use super::report::{Measure, Report};
use super::runner::NOT_FOR_PUBLICATION;
use super::statistics::Spread;

/// Title, measure and figure of each panel.
const PANELS: [(&str, Measure, &str); 4] = [
    (
        "CPU per request at the same rate (µs)",
        Measure::FixedRate,
        "cpu_us_per_request",
    ),
    (
        "p99 latency at the same rate (µs)",
        Measure::FixedRate,
        "p99_us",
    ),
    (
        "requests per second with half a core",
        Measure::HalfCore,
        "requests_per_s",
    ),
    (
        "PSS, 1,000 endpoints, 500 connections (MiB)",
        Measure::MemoryLoaded,
        "pss_mib",
    ),
];
const SIZE: (u32, u32) = (1000, 640);
const OURS: RGBColor = RGBColor(198, 93, 33);
const THEIRS: RGBColor = RGBColor(120, 134, 150);

/// Draws the panels into an SVG file.
///
/// # Errors
/// When the file cannot be written.
pub(super) fn draw(report: &Report, file: &Path) -> anyhow::Result<()> {
    let mut text = String::new();
    drawing(report, &mut text).map_err(|error| anyhow!("cannot draw: {error}"))?;
    write(file, &text, report.quick)
}

/// Writes a picture; one of a quick run says that it is.
///
/// # Errors
/// When the file cannot be written.
pub(super) fn write(file: &Path, picture: &str, quick: bool) -> anyhow::Result<()> {
    let text = match quick {
        true => with_footnote(picture, &format!("a quick run, {NOT_FOR_PUBLICATION}")),
        false => picture.to_owned(),
    };
    std::fs::write(file, text).with_context(|| format!("cannot write {}", file.display()))
}

/// A picture with a line of text at its lower edge.
pub(super) fn with_footnote(picture: &str, note: &str) -> String {
    let Some(body) = picture.trim_end().strip_suffix("</svg>") else {
        return picture.to_owned();
    };
    let note = note.replace('&', "&amp;").replace('<', "&lt;");
    format!(
        "{body}<text x=\"8\" y=\"100%\" dy=\"-4\" font-family=\"sans-serif\" font-size=\"11\" \
         fill=\"#606060\">{note}</text>\n</svg>\n"
    )
}

fn drawing(report: &Report, into: &mut String) -> Result<(), Box<dyn std::error::Error>> {
    let root = SVGBackend::with_string(into, SIZE).into_drawing_area();
    root.fill(&WHITE)?;
    for (area, (title, measure, figure)) in root.split_evenly((2, 2)).iter().zip(PANELS) {
        let bars: Vec<Bar> = report
            .rows
            .iter()
            .filter(|row| row.measure == measure && row.valid)
            .filter(|row| measure == Measure::MemoryLoaded || row.cell == report.main)
            .filter_map(|row| Some(Bar::of(&row.system, row.figures.get(figure)?)))
            .collect();
        if !bars.is_empty() {
            panel(area, title, &bars)?;
        }
    }
    root.present()?;
    Ok(())
}

/// A bar with its label below.
pub(super) struct Bar<'a> {
    pub(super) label: &'a str,
    pub(super) median: f64,
    /// The lowest and the highest round, as a whisker.
    pub(super) spread: Option<(f64, f64)>,
    pub(super) color: RGBColor,
}

impl Bar<'_> {
    fn of<'a>(system: &'a str, spread: &Spread) -> Bar<'a> {
        Bar {
            label: system,
            median: spread.median,
            spread: Some((spread.min, spread.max)),
            color: if system == "heddle" { OURS } else { THEIRS },
        }
    }
}

/// Draws bars side by side.
///
/// # Errors
/// When the library fails.
pub(super) fn panel<Backend: DrawingBackend>(
    area: &DrawingArea<Backend, plotters::coord::Shift>,
    title: &str,
    bars: &[Bar],
) -> Result<(), Box<dyn std::error::Error>>
where
    Backend::ErrorType: 'static,
{
    let highest = bars
        .iter()
        .map(|bar| bar.spread.map_or(bar.median, |(_, max)| max))
        .fold(f64::MIN_POSITIVE, f64::max)
        * 1.15;
    let count = i32::try_from(bars.len())?;
    let mut chart = ChartBuilder::on(area)
        .caption(title, ("sans-serif", 17))
        .margin(12)
        .x_label_area_size(28)
        .y_label_area_size(56)
        .build_cartesian_2d((0..count - 1).into_segmented(), 0.0..highest)?;
    let name = |position: &SegmentValue<i32>| match position {
        SegmentValue::CenterOf(index) => usize::try_from(*index)
            .ok()
            .and_then(|index| bars.get(index))
            .map_or(String::new(), |bar| bar.label.to_owned()),
        _ => String::new(),
    };
    chart
        .configure_mesh()
        .disable_x_mesh()
        .x_label_formatter(&name)
        .light_line_style(WHITE)
        .draw()?;
    for (index, bar) in (0..count).zip(bars) {
        let (left, right) = (SegmentValue::Exact(index), SegmentValue::Exact(index + 1));
        let mut body = Rectangle::new([(left, 0.0), (right, bar.median)], bar.color.filled());
        body.set_margin(0, 0, 18, 18);
        chart.draw_series(std::iter::once(body))?;
        if let Some((min, max)) = bar.spread {
            let middle = || SegmentValue::CenterOf(index);
            let whisker = PathElement::new([(middle(), min), (middle(), max)], BLACK);
            chart.draw_series(std::iter::once(whisker))?;
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests;
