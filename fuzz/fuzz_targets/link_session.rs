//! Two ends of a link, a network that fails and two owners, all as the input wants: streams stay whole, and both
//! ends come to rest.
#![no_main]

use heddle_wire::link::session::simulation::{Choices, World};
use libfuzzer_sys::fuzz_target;

fuzz_target!(|data: &[u8]| {
    World::run(Choices::script(data), usize::MAX);
});
