//! Metrics as OpenMetrics 1.0 text
//! (<https://prometheus.io/docs/specs/om/open_metrics_spec/>), written by `prometheus-client`.
//!
//! [`render`] makes a document from metric [families](crate::families), which the caller writes with the functions of
//! this module. Each returns the error of the encoder's output; writing to a string never fails.

#[cfg(test)]
mod tests;

use std::fmt;

use prometheus_client::collector::Collector;
use prometheus_client::encoding::{
    EncodeCounterValue, EncodeGaugeValue, EncodeLabelSet, EncodeMetric, MetricEncoder, NoLabelSet,
    text,
};
use prometheus_client::metrics::counter::ConstCounter;
use prometheus_client::metrics::gauge::ConstGauge;
use prometheus_client::registry::Registry;

pub use prometheus_client::encoding::DescriptorEncoder;

use crate::families::Family;

/// The `Content-Type` of a document made by [`render`].
pub const CONTENT_TYPE: &str = "application/openmetrics-text; version=1.0.0; charset=utf-8";

/// Renders the families that `write` encodes, followed by the end mark `# EOF`.
///
/// `write` must own its data (`'static`), because `prometheus-client` keeps it as a collector.
pub fn render<W>(write: W) -> String
where
    W: Fn(&mut DescriptorEncoder<'_>) -> fmt::Result + Send + Sync + 'static,
{
    let mut all = Registry::default();
    all.register_collector(Box::new(Families(write)));
    let mut out = String::new();
    let written = text::encode(&mut out, &all);
    debug_assert!(written.is_ok(), "a string takes everything");
    out
}

struct Families<W>(W);

impl<W> fmt::Debug for Families<W> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Families")
    }
}

impl<W> Collector for Families<W>
where
    W: Fn(&mut DescriptorEncoder<'_>) -> fmt::Result + Send + Sync + 'static,
{
    fn encode(&self, mut encoder: DescriptorEncoder<'_>) -> fmt::Result {
        (self.0)(&mut encoder)
    }
}

/// Encodes a counter without labels.
pub fn counter(
    encoder: &mut DescriptorEncoder<'_>,
    family: &Family,
    value: impl EncodeCounterValue,
) -> fmt::Result {
    ConstCounter::new(value).encode(begin(encoder, family)?)
}

/// Encodes a gauge without labels.
pub fn gauge(
    encoder: &mut DescriptorEncoder<'_>,
    family: &Family,
    value: impl EncodeGaugeValue,
) -> fmt::Result {
    ConstGauge::new(value).encode(begin(encoder, family)?)
}

/// Encodes a counter for each label set. A label set must not be empty: the sample would be written with `{}`.
pub fn counters<L: EncodeLabelSet>(
    encoder: &mut DescriptorEncoder<'_>,
    family: &Family,
    samples: impl IntoIterator<Item = (L, impl EncodeCounterValue)>,
) -> fmt::Result {
    let mut family = begin(encoder, family)?;
    for (labels, value) in samples {
        family
            .encode_family(&labels)?
            .encode_counter::<NoLabelSet, _, u64>(&value, None)?;
    }
    Ok(())
}

/// Encodes a gauge for each label set. A label set must not be empty, as for [`counters`].
pub fn gauges<L: EncodeLabelSet>(
    encoder: &mut DescriptorEncoder<'_>,
    family: &Family,
    samples: impl IntoIterator<Item = (L, impl EncodeGaugeValue)>,
) -> fmt::Result {
    let mut family = begin(encoder, family)?;
    for (labels, value) in samples {
        family.encode_family(&labels)?.encode_gauge(&value)?;
    }
    Ok(())
}

/// Begins a family. The family name has no `_total`: the encoder appends it to each sample of a counter.
pub(crate) fn begin<'e>(
    encoder: &'e mut DescriptorEncoder<'_>,
    family: &'e Family,
) -> Result<MetricEncoder<'e>, fmt::Error> {
    let name = family.name.strip_suffix("_total").unwrap_or(family.name);
    encoder.encode_descriptor(name, family.help, None, family.kind)
}
