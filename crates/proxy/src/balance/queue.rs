//! Waiting requests, in the order in which they came. Each holds a ticket and may leave at any time, without a trace.
//!
//! ```text
//!            full: refused    ┌───────────────────────┐
//!              ▲              ▼                       │ put back: not what it wants any more
//!   push ──────┴──▶ waiting ──┬── first, remove ──▶ served
//!                             └── remove ─────────▶ gone
//! ```

use std::collections::BTreeMap;

/// A bounded FIFO queue whose entries can be removed by ticket.
#[derive(Debug)]
pub(crate) struct Queue<T> {
    next: u64,
    waiting: BTreeMap<u64, T>,
}

/// Identifies an entry of a queue, and its position.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Ticket(u64);

impl<T> Default for Queue<T> {
    fn default() -> Self {
        Queue {
            next: 0,
            waiting: BTreeMap::new(),
        }
    }
}

impl<T> Queue<T> {
    /// Adds an entry at the end of the queue. `None`: the queue has `most` entries already.
    pub(crate) fn push(&mut self, one: T, most: usize) -> Option<Ticket> {
        if self.waiting.len() >= most {
            return None;
        }
        let ticket = self.next;
        self.next += 1;
        self.waiting.insert(ticket, one);
        Some(Ticket(ticket))
    }

    /// Takes an entry out of the queue. `None`: it has left already.
    pub(crate) fn remove(&mut self, ticket: Ticket) -> Option<T> {
        self.waiting.remove(&ticket.0)
    }

    /// Puts an entry back at its old position, even if the queue is at its bound: the entry was there before.
    pub(crate) fn put_back(&mut self, ticket: Ticket, one: T) {
        self.waiting.insert(ticket.0, one);
    }

    pub(crate) fn get_mut(&mut self, ticket: Ticket) -> Option<&mut T> {
        self.waiting.get_mut(&ticket.0)
    }

    /// The entry that has waited longest of those that fit.
    pub(crate) fn first(&self, fits: impl Fn(&T) -> bool) -> Option<Ticket> {
        let (&ticket, _) = self.waiting.iter().find(|(_, one)| fits(one))?;
        Some(Ticket(ticket))
    }

    /// Whether any entry matches. The newest entries are checked first.
    pub(crate) fn has(&self, is_such: impl Fn(&T) -> bool) -> bool {
        self.waiting.values().rev().any(is_such)
    }

    pub(crate) fn len(&self) -> usize {
        self.waiting.len()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn it_has_a_bound() {
        let mut queue = Queue::default();
        assert!(queue.push('a', 0).is_none());
        let a = queue.push('a', 2).unwrap();
        assert!(queue.push('b', 2).is_some());
        assert!(queue.push('c', 2).is_none());
        assert_eq!(queue.remove(a), Some('a'));
        assert_eq!(queue.remove(a), None);
        assert!(queue.push('c', 2).is_some());
    }

    proptest! {
        /// Compares the queue with a simple list.
        #[test]
        fn the_first_that_fits_is_served(steps in prop::collection::vec((0u8..4, any::<u8>()), 1..300)) {
            let mut queue = Queue::default();
            let mut list: Vec<(Ticket, u8)> = Vec::new();
            for (what, value) in steps {
                match what {
                    0 | 1 => {
                        let ticket = queue.push(value, 20);
                        prop_assert_eq!(ticket.is_some(), list.len() < 20);
                        list.extend(ticket.map(|ticket| (ticket, value)));
                    }
                    2 => {
                        let fits = |one: &u8| one % 3 == value % 3;
                        let at = list.iter().position(|(_, one)| fits(one));
                        prop_assert_eq!(queue.has(fits), at.is_some());
                        let first = queue.first(fits);
                        let got = first.and_then(|ticket| queue.remove(ticket));
                        prop_assert_eq!(got, at.map(|at| list.remove(at).1));
                    }
                    _ if list.is_empty() => {}
                    _ => {
                        let (ticket, value) = list.remove(usize::from(value) % list.len());
                        prop_assert_eq!(queue.get_mut(ticket).copied(), Some(value));
                        prop_assert_eq!(queue.remove(ticket), Some(value));
                    }
                }
                prop_assert_eq!(queue.len(), list.len());
            }
        }
    }
}
