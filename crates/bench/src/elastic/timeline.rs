//! A picture of the number of Workers over time, and of the load.

use std::path::Path;

use anyhow::anyhow;
use plotters::prelude::*;

use crate::plot;

const SIZE: (u32, u32) = (1000, 320);
const BUSY: RGBColor = RGBColor(236, 222, 208);
const WORKERS: RGBColor = RGBColor(198, 93, 33);
const ACTIVE: RGBColor = RGBColor(90, 104, 120);

/// The number of Workers at one time, retiring ones included.
#[derive(Clone, Copy, Debug)]
pub(super) struct WorkerSample {
    pub(super) unix_ms: f64,
    pub(super) workers: usize,
    pub(super) retiring: usize,
}

/// Samples and phases of all cycles.
#[derive(Debug, Default)]
pub(super) struct Timeline {
    pub(super) samples: Vec<WorkerSample>,
    /// When each phase began, in Unix milliseconds: quiet and busy in turn, quiet first.
    pub(super) phases: Vec<f64>,
}

impl Timeline {
    /// Seconds since the first phase began.
    fn seconds(&self, unix_ms: f64) -> f64 {
        let start = self.phases.first().copied().unwrap_or(unix_ms);
        (unix_ms - start) / 1e3
    }

    fn end(&self) -> f64 {
        let last = self.samples.last().map(|sample| sample.unix_ms);
        last.map_or(1.0, |last| self.seconds(last)).max(1.0)
    }

    /// Draws it into an SVG file.
    ///
    /// # Errors
    /// When the file cannot be written.
    pub(super) fn draw(&self, file: &Path, quick: bool) -> anyhow::Result<()> {
        let mut text = String::new();
        self.drawing(&mut text)
            .map_err(|error| anyhow!("cannot draw: {error}"))?;
        plot::write(file, &text, quick)
    }

    fn drawing(&self, into: &mut String) -> Result<(), Box<dyn std::error::Error>> {
        let most = self.samples.iter().map(|sample| sample.workers).max();
        let highest = most.unwrap_or(1) as f64 + 0.5;
        let root = SVGBackend::with_string(into, SIZE).into_drawing_area();
        root.fill(&WHITE)?;
        let mut chart = ChartBuilder::on(&root)
            .caption(
                "Workers over time; as fast as it goes where shaded",
                ("sans-serif", 17),
            )
            .margin(12)
            .x_label_area_size(36)
            .y_label_area_size(40)
            .build_cartesian_2d(0.0..self.end(), 0.0..highest)?;
        chart.draw_series(
            self.busy()
                .map(|(from, to)| Rectangle::new([(from, 0.0), (to, highest)], BUSY.filled())),
        )?;
        chart
            .configure_mesh()
            .disable_mesh()
            .x_desc("seconds")
            .y_labels(most.unwrap_or(1) + 1)
            .y_label_formatter(&|workers| format!("{workers:.0}"))
            .draw()?;
        let all = self.line(|sample| sample.workers);
        let active = self.line(|sample| sample.workers - sample.retiring);
        chart
            .draw_series(LineSeries::new(all, WORKERS.stroke_width(2)))?
            .label("workers")
            .legend(|(x, y)| PathElement::new([(x, y), (x + 18, y)], WORKERS.stroke_width(2)));
        chart
            .draw_series(LineSeries::new(active, ACTIVE.stroke_width(1)))?
            .label("not retiring")
            .legend(|(x, y)| PathElement::new([(x, y), (x + 18, y)], ACTIVE));
        chart
            .configure_series_labels()
            .background_style(WHITE.mix(0.8))
            .draw()?;
        root.present()?;
        Ok(())
    }

    /// Beginning and end of each busy phase, in seconds.
    fn busy(&self) -> impl Iterator<Item = (f64, f64)> + '_ {
        let busy = self.phases.iter().enumerate().skip(1).step_by(2);
        busy.map(|(index, start)| {
            let next = self.phases.get(index + 1);
            let end = next.map_or(self.end(), |next| self.seconds(*next));
            (self.seconds(*start), end)
        })
    }

    /// Steps, not slopes: a number of Workers holds until the next sample.
    fn line(&self, of: impl Fn(&WorkerSample) -> usize) -> Vec<(f64, f64)> {
        let mut line: Vec<(f64, f64)> = Vec::new();
        for sample in &self.samples {
            let at = self.seconds(sample.unix_ms).max(0.0);
            let now = of(sample) as f64;
            let before = line.last().map_or(now, |(_, before)| *before);
            if before != now {
                line.push((at, before));
            }
            line.push((at, now));
        }
        line
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_step_is_drawn_upright_and_a_busy_phase_shaded() {
        let sample = |unix_ms, workers| WorkerSample {
            unix_ms,
            workers,
            retiring: 0,
        };
        let timeline = Timeline {
            samples: vec![sample(1000.0, 1), sample(3000.0, 2), sample(5000.0, 1)],
            phases: vec![1000.0, 2000.0, 4000.0],
        };
        assert_eq!(timeline.busy().collect::<Vec<_>>(), [(1.0, 3.0)]);
        let expected = [(0.0, 1.0), (2.0, 1.0), (2.0, 2.0), (4.0, 2.0), (4.0, 1.0)];
        assert_eq!(timeline.line(|sample| sample.workers), expected);
        let mut text = String::new();
        timeline.drawing(&mut text).unwrap();
        assert!(
            text.starts_with("<svg") && text.contains("not retiring"),
            "{text}"
        );
    }

    #[test]
    fn nothing_measured_is_an_empty_picture() {
        let mut text = String::new();
        Timeline::default().drawing(&mut text).unwrap();
        assert!(text.starts_with("<svg"), "{text}");
    }
}
