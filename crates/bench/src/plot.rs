//! The main figures as bars: one panel each, one bar a system, whiskers for the spread.

use std::path::Path;

use anyhow::{Context, anyhow};
use plotters::prelude::*;

use super::report::{Measure, Report};
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
        "memory, 1,000 endpoints, 500 connections (MiB)",
        Measure::MemoryLoaded,
        "rss_mib",
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
    std::fs::write(file, text).with_context(|| format!("cannot write {}", file.display()))
}

fn drawing(report: &Report, into: &mut String) -> Result<(), Box<dyn std::error::Error>> {
    let root = SVGBackend::with_string(into, SIZE).into_drawing_area();
    root.fill(&WHITE)?;
    for (area, (title, measure, figure)) in root.split_evenly((2, 2)).iter().zip(PANELS) {
        let bars: Vec<(&str, &Spread)> = report
            .rows
            .iter()
            .filter(|row| row.measure == measure && row.valid)
            .filter(|row| measure == Measure::MemoryLoaded || row.cell == report.main)
            .filter_map(|row| Some((row.system.as_str(), row.figures.get(figure)?)))
            .collect();
        if !bars.is_empty() {
            panel(area, title, &bars)?;
        }
    }
    root.present()?;
    Ok(())
}

fn panel<Backend: DrawingBackend>(
    area: &DrawingArea<Backend, plotters::coord::Shift>,
    title: &str,
    bars: &[(&str, &Spread)],
) -> Result<(), Box<dyn std::error::Error>>
where
    Backend::ErrorType: 'static,
{
    let highest = bars
        .iter()
        .map(|(_, spread)| spread.max)
        .fold(0.0, f64::max)
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
            .map_or(String::new(), |(name, _)| (*name).to_owned()),
        _ => String::new(),
    };
    chart
        .configure_mesh()
        .disable_x_mesh()
        .x_label_formatter(&name)
        .light_line_style(WHITE)
        .draw()?;
    for (index, (name, spread)) in (0..count).zip(bars) {
        let color = if *name == "heddle" { OURS } else { THEIRS };
        let (left, right) = (SegmentValue::Exact(index), SegmentValue::Exact(index + 1));
        let mut bar = Rectangle::new([(left, 0.0), (right, spread.median)], color.filled());
        bar.set_margin(0, 0, 18, 18);
        chart.draw_series(std::iter::once(bar))?;
        let middle = || SegmentValue::CenterOf(index);
        let whisker = PathElement::new([(middle(), spread.min), (middle(), spread.max)], BLACK);
        chart.draw_series(std::iter::once(whisker))?;
    }
    Ok(())
}

#[cfg(test)]
mod tests;
