//! Both flows over time, one chart for each condition.

use anyhow::anyhow;
use plotters::prelude::*;

use super::figures::{Sample, Trace};
use super::{Condition, END, LINK, Seen};

const SIZE: (u32, u32) = (1_120, 260);
const ONLINE: RGBColor = RGBColor(198, 93, 33);
const OFFLINE: RGBColor = RGBColor(72, 92, 130);
/// Samples behind a point of a line: 50 ms.
const POINT: usize = 5;

/// Draws the first run of each condition as SVG.
///
/// # Errors
/// When the library fails.
pub(super) fn draw(seen: &[Seen]) -> anyhow::Result<String> {
    let first = |condition| seen.iter().find(|seen| seen.condition == condition);
    let runs: Vec<&Seen> = Condition::ALL.into_iter().filter_map(first).collect();
    let mut text = String::new();
    drawing(&runs, &mut text).map_err(|error| anyhow!("cannot draw: {error}"))?;
    Ok(text)
}

fn drawing(runs: &[&Seen], into: &mut String) -> Result<(), Box<dyn std::error::Error>> {
    let rows = runs.len().max(1);
    let size = (SIZE.0, SIZE.1 * u32::try_from(rows)?);
    let root = SVGBackend::with_string(into, size).into_drawing_area();
    root.fill(&WHITE)?;
    for (area, run) in root.split_evenly((rows, 1)).iter().zip(runs) {
        let title = match run.condition {
            Condition::Off => "without node QoS",
            Condition::Waterline => "two rates and a waterline, link not declared",
            Condition::On => "what online pods leave of the declared link",
        };
        let top = LINK as f64 / 1e6 * 1.35;
        let mut chart = ChartBuilder::on(area)
            .caption(title, ("sans-serif", 16))
            .margin(10)
            .x_label_area_size(32)
            .y_label_area_size(54)
            .build_cartesian_2d(0.0..END as f64, 0.0..top)?;
        chart
            .configure_mesh()
            .x_desc("seconds")
            .y_desc("MB/s behind the bottleneck")
            .x_label_formatter(&|x| format!("{x:.0}"))
            .y_label_formatter(&|y| format!("{y:.0}"))
            .light_line_style(WHITE)
            .draw()?;
        let online: fn(&Sample) -> f64 = |sample| sample.online;
        let offline: fn(&Sample) -> f64 = |sample| sample.offline;
        for (name, color, rate) in [("offline", OFFLINE, offline), ("online", ONLINE, online)] {
            chart
                .draw_series(LineSeries::new(
                    points(&run.trace, rate),
                    color.stroke_width(1),
                ))?
                .label(name)
                .legend(move |(x, y)| {
                    PathElement::new([(x, y), (x + 18, y)], color.stroke_width(2))
                });
        }
        chart
            .configure_series_labels()
            .position(SeriesLabelPosition::UpperRight)
            .background_style(WHITE.mix(0.8))
            .draw()?;
    }
    root.present()?;
    Ok(())
}

fn points(trace: &Trace, rate: fn(&Sample) -> f64) -> Vec<(f64, f64)> {
    let chunks = trace.samples.chunks(POINT);
    let point = |samples: &[Sample]| {
        let sum: f64 = samples.iter().map(rate).sum();
        let at = samples.last().map_or(0.0, |last| last.at_ms as f64 / 1e3);
        (at, sum / samples.len() as f64 / 1e6)
    };
    chunks.map(point).collect()
}
