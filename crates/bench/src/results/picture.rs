//! The picture of a part: drawn by its experiment, or bars of some figures; with the commit and the date below.

use std::fs;
use std::path::Path;

use anyhow::anyhow;
use plotters::prelude::*;

use super::parts::{Panel, Part, Picture};
use super::record::Record;
use super::shown;
use crate::plot;
use crate::runner::NOT_FOR_PUBLICATION;

const WIDTH: u32 = 500;
const HEIGHT: u32 = 320;
const BARS: RGBColor = RGBColor(198, 93, 33);

/// Writes the picture of a part. `drawn` is the file that its experiment drew.
///
/// # Errors
/// When the experiment drew nothing, or the file cannot be written.
pub(super) fn write(
    part: &Part,
    record: &Record,
    drawn: &Path,
    folder: &Path,
) -> anyhow::Result<()> {
    let picture = match part.picture {
        Picture::Own => fs::read_to_string(drawn)?,
        Picture::Bars(panels) => bars(panels, record)?,
    };
    let picture = plot::with_footnote(&picture, &footnote(record));
    let file = folder.join(format!("{}.svg", part.name));
    Ok(fs::write(file, picture)?)
}

fn footnote(record: &Record) -> String {
    let whose = format!("commit {}, {}", shown::commit(record), record.origin.date);
    match record.objections().is_empty() {
        true => whose,
        // A quick experiment has put its own note at the same place.
        false => format!("{whose}: {NOT_FOR_PUBLICATION}"),
    }
}

/// Bars of those figures that are on record.
///
/// # Errors
/// When the library fails.
fn bars(panels: &[Panel], record: &Record) -> anyhow::Result<String> {
    let mut text = String::new();
    drawing(panels, record, &mut text).map_err(|error| anyhow!("cannot draw: {error}"))?;
    Ok(text)
}

fn drawing(
    panels: &[Panel],
    record: &Record,
    into: &mut String,
) -> Result<(), Box<dyn std::error::Error>> {
    let columns = panels.len().max(1);
    let size = (WIDTH * u32::try_from(columns)?, HEIGHT);
    let root = SVGBackend::with_string(into, size).into_drawing_area();
    root.fill(&WHITE)?;
    for (area, (title, bars)) in root.split_evenly((1, columns)).iter().zip(panels) {
        let found = bars
            .iter()
            .filter_map(|(label, name)| Some((*label, record.figure(name)?)));
        let found: Vec<_> = found
            .map(|(label, figure)| plot::Bar {
                label,
                median: figure.value,
                spread: figure.spread.map(|spread| (spread.min, spread.max)),
                color: BARS,
            })
            .collect();
        if !found.is_empty() {
            plot::panel(area, title, &found)?;
        }
    }
    root.present()?;
    Ok(())
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::results::parts::PARTS;
    use crate::results::record::tests::record;

    #[test]
    fn figures_become_bars_with_a_footnote_that_says_whose_they_are() {
        let dir = tempfile::tempdir().unwrap();
        let part = PARTS.iter().find(|part| part.name == "link").unwrap();
        let report = json!({"values": {"link_mtls_bytes": 284.0, "http1_mtls_bytes": 1039.0}});
        let mut record = record("link", report);
        let read = || fs::read_to_string(dir.path().join("link.svg")).unwrap();
        write(part, &record, Path::new("/none"), dir.path()).unwrap();
        let picture = read();
        for word in [
            "bytes of an exchange",
            "HTTP/1.1",
            "commit c0ffee01, 2026-01-02<",
        ] {
            assert!(picture.contains(word), "{word}: {picture}");
        }
        record.origin.draft = true;
        write(part, &record, Path::new("/none"), dir.path()).unwrap();
        assert!(read().contains("2026-01-02: not for publication<"));
    }
}
