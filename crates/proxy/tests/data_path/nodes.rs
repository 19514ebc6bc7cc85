//! Two nodes: what one of them cannot do alone.

mod pair;
mod refused;
mod traffic;
mod trust;
