//! Two ends of a link, a failing network and two owners, all driven by the input: streams stay intact, and both ends
//! become idle.

use heddle_wire::link::session::simulation::{Choices, World};

/// Checks one input.
pub fn check(data: &[u8]) {
    World::run(Choices::script(data), usize::MAX);
}
