//! Two nodes: what one of them cannot do alone.

mod absent;
mod elsewhere;
mod endings;
mod heads;
mod http2;
mod links;
mod mixed;
mod named;
pub(crate) mod pair;
mod refused;
mod relay;
mod shares;
mod shown;
mod spread;
mod traffic;
mod trust;
mod waiting;
