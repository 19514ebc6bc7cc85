//! Time and bytes of a change by the number of pods, on demand beside eager.

use std::path::Path;

use anyhow::anyhow;
use plotters::prelude::*;

use super::Mode;
use super::report::{Figure, Scales};
use super::run::Found;
use crate::plot::{self, Bar};

const SIZE: (u32, u32) = (1000, 340);
const ON_DEMAND: RGBColor = RGBColor(198, 93, 33);
const ISTIOD: RGBColor = RGBColor(70, 107, 176);
const EAGER: RGBColor = RGBColor(120, 134, 150);

const PANELS: [(&str, Figure); 2] = [
    ("p99 of a change (ms)", |found| found.p99_ms),
    ("bytes of a change to all nodes (KiB)", |found| {
        let bytes = found.bytes_per_node_change()?;
        Some(bytes * found.nodes / 1024.0)
    }),
];

/// Draws both panels into an SVG file.
///
/// # Errors
/// When the file cannot be written.
pub(super) fn draw(scales: &Scales, file: &Path, quick: bool) -> anyhow::Result<()> {
    let mut text = String::new();
    drawing(scales, &mut text).map_err(|error| anyhow!("cannot draw: {error}"))?;
    plot::write(file, &text, quick)
}

fn drawing(scales: &Scales, into: &mut String) -> Result<(), Box<dyn std::error::Error>> {
    let root = SVGBackend::with_string(into, SIZE).into_drawing_area();
    root.fill(&WHITE)?;
    for (area, (title, figure)) in root.split_evenly((1, 2)).iter().zip(PANELS) {
        let labels: Vec<String> = scales.runs.iter().map(label).collect();
        let runs = scales.runs.iter().zip(&labels);
        let bars = runs.filter_map(|((_, mode, found), label)| {
            Some(Bar {
                label,
                median: figure(found)?,
                spread: None,
                color: match mode {
                    Mode::OnDemand => ON_DEMAND,
                    Mode::Eager => EAGER,
                    Mode::IstiodOnDemand | Mode::IstiodEager => ISTIOD,
                },
            })
        });
        let bars: Vec<Bar> = bars.collect();
        if !bars.is_empty() {
            plot::panel(area, title, &bars)?;
        }
    }
    root.present()?;
    Ok(())
}

fn label((pods, mode, _): &(usize, Mode, Found)) -> String {
    let pods = match pods {
        1_000.. => format!("{}k", pods / 1_000),
        pods => pods.to_string(),
    };
    match mode {
        Mode::OnDemand => pods,
        mode => format!("{pods} {}", mode.name()),
    }
}
