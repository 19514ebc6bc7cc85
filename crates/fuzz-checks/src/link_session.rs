//! Two ends of a link, a network that fails and two owners, all as the input wants: streams stay whole, and both
//! ends come to rest.

use heddle_wire::link::session::simulation::{Choices, World};

/// Checks one input.
pub fn check(data: &[u8]) {
    World::run(Choices::script(data), usize::MAX);
}
