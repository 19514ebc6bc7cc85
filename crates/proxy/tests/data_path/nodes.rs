//! Two nodes: what one of them cannot do alone.

pub(crate) mod pair;
mod refused;
mod traffic;
mod trust;
