//! Lines over an axis, as in the figures of the node-level mesh.

use anyhow::anyhow;
use plotters::coord::Shift;
use plotters::prelude::*;

use super::kind::Kind;

const WIDTH: u32 = 560;
const HEIGHT: u32 = 400;
/// A line of more points is drawn without a dot at each.
const MOST_DOTS: usize = 24;

/// One of the charts of a picture.
#[derive(Debug)]
pub(super) struct Panel {
    pub(super) title: String,
    pub(super) axis: String,
    pub(super) lines: Vec<Line>,
}

/// A line: of a system, or of anything else.
#[derive(Debug)]
pub(super) struct Line {
    pub(super) label: String,
    pub(super) color: RGBColor,
    pub(super) points: Vec<(f64, f64)>,
}

impl Line {
    /// The line of a system.
    pub(super) fn of(kind: Kind, points: Vec<(f64, f64)>) -> Line {
        Line {
            label: kind.title().to_owned(),
            color: color(kind),
            points,
        }
    }
}

/// Draws panels, two in a row, as SVG.
///
/// # Errors
/// When the library fails.
pub(super) fn draw(panels: &[Panel]) -> anyhow::Result<String> {
    let mut text = String::new();
    drawing(panels, &mut text).map_err(|error| anyhow!("cannot draw: {error}"))?;
    Ok(text)
}

fn drawing(panels: &[Panel], into: &mut String) -> Result<(), Box<dyn std::error::Error>> {
    let columns = panels.len().clamp(1, 2);
    let rows = panels.len().div_ceil(columns).max(1);
    let size = (
        WIDTH * u32::try_from(columns)?,
        HEIGHT * u32::try_from(rows)?,
    );
    let root = SVGBackend::with_string(into, size).into_drawing_area();
    root.fill(&WHITE)?;
    for (area, panel) in root.split_evenly((rows, columns)).iter().zip(panels) {
        one(area, panel)?;
    }
    root.present()?;
    Ok(())
}

fn one<Backend: DrawingBackend>(
    area: &DrawingArea<Backend, Shift>,
    panel: &Panel,
) -> Result<(), Box<dyn std::error::Error>>
where
    Backend::ErrorType: 'static,
{
    let points = panel.lines.iter().flat_map(|line| &line.points);
    let (right, top) = points.fold((1.0_f64, 0.0_f64), |(x, y), point| {
        (x.max(point.0), y.max(point.1))
    });
    // Room above the lines for the legend.
    let top = if top > 0.0 { top * 1.4 } else { 1.0 };
    let mut chart = ChartBuilder::on(area)
        .caption(&panel.title, ("sans-serif", 17))
        .margin(12)
        .x_label_area_size(40)
        .y_label_area_size(60)
        .build_cartesian_2d(0.0..right * 1.05, 0.0..top)?;
    chart
        .configure_mesh()
        .x_desc(&panel.axis)
        .x_label_formatter(&|x| format!("{x:.0}"))
        .y_label_formatter(&|y| match top < 10.0 {
            true => format!("{y:.1}"),
            false => format!("{y:.0}"),
        })
        .light_line_style(WHITE)
        .draw()?;
    for line in &panel.lines {
        let (color, points) = (line.color, &line.points);
        chart
            .draw_series(LineSeries::new(points.clone(), color.stroke_width(2)))?
            .label(&line.label)
            .legend(move |(x, y)| PathElement::new([(x, y), (x + 18, y)], color.stroke_width(2)));
        if points.len() <= MOST_DOTS {
            let dots = points.iter().map(|at| Circle::new(*at, 3, color.filled()));
            chart.draw_series(dots)?;
        }
    }
    chart
        .configure_series_labels()
        .position(SeriesLabelPosition::UpperLeft)
        .background_style(WHITE.mix(0.8))
        .draw()?;
    Ok(())
}

fn color(kind: Kind) -> RGBColor {
    match kind {
        Kind::Direct => RGBColor(160, 160, 160),
        Kind::Node => RGBColor(198, 93, 33),
        Kind::Pod => RGBColor(222, 165, 90),
        Kind::Envoy => RGBColor(72, 92, 130),
        Kind::Shared => RGBColor(140, 165, 205),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_line_is_drawn_and_nothing_measured_is_an_empty_picture() {
        let panel = |lines| Panel {
            title: "CPU".to_owned(),
            axis: "requests/s".to_owned(),
            lines,
        };
        let line = Line::of(Kind::Node, vec![(1.0, 2.0), (2.0, 3.0)]);
        let text = draw(&[panel(vec![line]), panel(Vec::new())]).expect("a picture");
        assert!(text.contains("one per node"), "{text}");
        assert!(draw(&[]).expect("a picture").starts_with("<svg"));
    }
}
