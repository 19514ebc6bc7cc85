//! Rooms for tests.

use std::sync::Arc;
use std::time::Instant;

use super::{Line, Room, Rooms};

/// Rooms with these limits, for which up to `most` requests may wait, one second each.
pub(crate) fn rooms(limits: &[u32], most: usize) -> Arc<Rooms> {
    let line = Arc::new(Line::default());
    line.bound(most, 1_000);
    let each = (1u16..).zip(limits).map(|(port, &limit)| {
        let room = Room::new(([127, 0, 0, 1], port).into(), &line, 0);
        room.limit(limit);
        Arc::new(room)
    });
    Arc::new(Rooms {
        each: each.collect(),
        line: Arc::clone(&line),
        ejection: None,
        slow_start_ms: 0,
        epoch: Instant::now(),
    })
}
