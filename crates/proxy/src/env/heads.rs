//! How much of a head is taken.

use heddle_wire::http1::{Limits, MAX_FIELDS};

use super::Env;
use crate::io::{Carrier, SideOf};
use crate::settings::Bounds;

/// What a node adds to a head on its way: fields that say where it came from, and those of routes. Another node takes
/// as many more than it would of a client, or it would refuse what was allowed here.
const ADDED_FIELDS: usize = 32;
/// The same in bytes.
pub(crate) const ADDED_BYTES: usize = 4 * 1024;

/// Limits of heads.
#[derive(Debug)]
pub(super) struct HeadLimits {
    own: Limits,
    of_nodes: Limits,
}

impl HeadLimits {
    pub(super) fn new(bounds: &Bounds) -> Self {
        let own = Limits {
            max_head_bytes: bounds.head_bytes.min(usize::from(u16::MAX)),
            max_fields: bounds.head_fields,
            ..Limits::default()
        };
        let of_nodes = Limits {
            max_head_bytes: (own.max_head_bytes + ADDED_BYTES).min(usize::from(u16::MAX)),
            max_fields: (own.max_fields + ADDED_FIELDS).min(MAX_FIELDS),
            max_target_bytes: own.max_target_bytes + ADDED_BYTES,
            ..own
        };
        HeadLimits { own, of_nodes }
    }
}

impl Env {
    /// How much of a head is taken that comes from a side.
    pub(crate) fn limits_of(&self, side: &SideOf<impl Carrier>) -> &Limits {
        match side.is_to_node() {
            true => &self.limits.of_nodes,
            false => &self.limits.own,
        }
    }
}
