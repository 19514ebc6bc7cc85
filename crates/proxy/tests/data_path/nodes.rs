//! Tests that need two nodes.

mod absent;
mod by_hand;
mod classes;
mod counted;
mod elsewhere;
mod endings;
mod heads;
mod http2;
mod links;
mod mixed;
mod named;
mod one_way;
pub(crate) mod pair;
mod refused;
mod relay;
mod shares;
mod shown;
mod spread;
mod stock;
mod traffic;
mod trust;
mod waiting;
