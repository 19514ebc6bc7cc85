//! Limits for the heads that are received and sent.

use heddle_wire::http1::{Limits, MAX_FIELDS};

use super::Env;
use crate::failure::{Failure, Reason};
use crate::io::{Carrier, SideOf};
use crate::settings::Bounds;

/// Limits for heads from other nodes, whatever this node's own limits are: the other node has applied its own, and has
/// added fields. They are the parser's maximum.
const OF_NODES: Limits = Limits {
    max_head_bytes: u16::MAX as usize,
    max_fields: MAX_FIELDS,
    max_target_bytes: u16::MAX as usize,
    ..Limits::DEFAULT
};
/// Fields by which the limit for sending to another node is lower: HTTP/2 rewrites heads, with a space after each
/// colon, its own reason phrase, and a field for a body that had none.
const WRITTEN_ANEW_FIELDS: usize = 2;
/// The same, in bytes.
const WRITTEN_ANEW_BYTES: usize = 1024;

const TO_NODES_FIELDS: usize = OF_NODES.max_fields - WRITTEN_ANEW_FIELDS;
const TO_NODES_BYTES: usize = OF_NODES.max_head_bytes - WRITTEN_ANEW_BYTES;
/// Length of the shortest field line.
const FIELD_BYTES: usize = b"a:\r\n".len();

/// Fields that a node may add to a head, beside those of routes: fields that say where the request came from.
const ADDED_FIELDS: usize = 32;
/// The same, in bytes.
const ADDED_BYTES: usize = 4 * 1024;

/// Upper limit of [`Bounds::head_fields`], the number of fields in a head.
pub const MAX_HEAD_FIELDS: usize = MAX_FIELDS - ADDED_FIELDS;
/// Upper limit of [`Bounds::head_bytes`], the length of a head in bytes.
pub const MAX_HEAD_BYTES: usize = OF_NODES.max_head_bytes - ADDED_BYTES;

/// Limits for heads from clients and local endpoints.
pub(super) fn own_limits(bounds: &Bounds) -> Limits {
    Limits {
        max_head_bytes: bounds.head_bytes.min(MAX_HEAD_BYTES),
        max_fields: bounds.head_fields.min(MAX_HEAD_FIELDS),
        ..Limits::default()
    }
}

impl Env {
    /// The limits for heads that come from a side.
    pub(crate) fn limits_of(&self, side: &SideOf<impl Carrier>) -> &Limits {
        match side.is_to_node() {
            true => &OF_NODES,
            false => &self.own_limits,
        }
    }
}

/// Checks that another node will accept a request's head that is ready to be sent.
///
/// # Errors
/// [`Reason::HeadGrew`] if it is too large.
pub(crate) fn fits_nodes(head: &[u8]) -> Result<(), Failure> {
    // Most heads are too short to exceed the number of fields, so they are not counted.
    let may_have_many = head.len() > FIELD_BYTES * TO_NODES_FIELDS;
    if head.len() > TO_NODES_BYTES || may_have_many && fields(head) > TO_NODES_FIELDS {
        return Err(Reason::HeadGrew.into());
    }
    Ok(())
}

/// Number of fields of a head: its lines except the first and the empty last one.
fn fields(head: &[u8]) -> usize {
    let lines = head.iter().filter(|&&byte| byte == b'\n').count();
    lines.saturating_sub(2)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn head(fields: usize, bytes: usize) -> Vec<u8> {
        let mut head = b"GET / HTTP/1.1\r\n".to_vec();
        (0..fields).for_each(|_| head.extend_from_slice(b"a:\r\n"));
        let filled = bytes.saturating_sub(head.len() + 2);
        head.splice(5..5, std::iter::repeat_n(b'a', filled));
        head.extend_from_slice(b"\r\n");
        head
    }

    #[test]
    fn what_a_node_would_not_take_is_not_sent() {
        let (most, longest) = (TO_NODES_FIELDS, TO_NODES_BYTES);
        for (fields, bytes, fits) in [
            (0, 0, true),
            (most, 0, true),
            (most, longest, true),
            (most + 1, 0, false),
            (most + 1, 2000, false),
            (1, longest + 1, false),
        ] {
            let fitted = fits_nodes(&head(fields, bytes));
            assert_eq!(fitted.is_ok(), fits, "{fields} fields, {bytes} bytes");
        }
    }
}
