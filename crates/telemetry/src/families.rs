//! Every metric family: its name, type, labels and help text. `/metrics` and `docs/metrics.md` are both written from
//! these tables.

pub mod control;
pub mod node;
#[cfg(test)]
mod page;
pub mod process;
pub mod proxy;
pub mod qos;

use prometheus_client::metrics::MetricType;

/// A metric family.
#[derive(Clone, Copy, Debug)]
pub struct Family {
    /// Name as in queries: that of a counter ends in `_total`.
    pub name: &'static str,
    /// Type, as in `# TYPE`.
    pub kind: MetricType,
    /// Names of its labels; `traffic` stands for those of [`TrafficLabels`](crate::TrafficLabels).
    pub labels: &'static [&'static str],
    /// Help text: one or more sentences, without quotes, backslashes and line ends, because the encoder does not
    /// escape them.
    pub help: &'static str,
    /// Where the documentation says more: a link relative to `docs/`.
    pub more: Option<&'static str>,
}

/// Defines a constant for each family, and `ALL`, a table of them in the order of the page.
macro_rules! families {
    (@more) => { None };
    (@more $page:literal) => { Some($page) };
    ($($family:ident = $kind:ident $name:literal [$($label:ident)*] $help:literal $(more $page:literal)?;)*) => {
        $(
            #[doc = $help]
            pub const $family: $crate::families::Family = $crate::families::Family {
                name: $name,
                kind: prometheus_client::metrics::MetricType::$kind,
                labels: &[$(stringify!($label)),*],
                help: $help,
                more: $crate::families::families!(@more $($page)?),
            };
        )*
        /// All families of this module.
        pub const ALL: &[$crate::families::Family] = &[$($family),*];
    };
}
pub(crate) use families;
