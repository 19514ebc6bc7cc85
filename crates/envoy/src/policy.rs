//! Placeholder until the policies are merged: nothing but an open guard is let through.
use envoy_types::pb::envoy::config::listener::v3::Filter;
use envoy_types::pb::envoy::extensions::filters::network::http_connection_manager::v3::HttpFilter;
use heddle_model::Guard;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Callers {
    Proven,
    Anonymous,
}
pub(crate) struct Filters<F> {
    pub(crate) filters: Vec<F>,
}
pub(crate) fn http(_: &Guard, _: u16, _: Callers) -> Filters<HttpFilter> {
    Filters {
        filters: Vec::new(),
    }
}
pub(crate) fn bytes(_: &Guard, _: u16, _: Callers) -> Filters<Filter> {
    Filters {
        filters: Vec::new(),
    }
}
