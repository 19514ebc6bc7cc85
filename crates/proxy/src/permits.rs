//! How many client connections there may be, whoever accepts them and wherever they are: with a Worker,
//! on the way from one to another, or waiting for one.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

/// What is left of a bound that all threads share. It is touched when a connection comes or goes, never
/// for a request.
#[derive(Debug, Clone)]
pub(crate) struct Permits {
    left: Arc<AtomicUsize>,
}

/// The right of one connection to be open, given back when it is dropped.
#[derive(Debug)]
pub(crate) struct Permit {
    left: Arc<AtomicUsize>,
}

impl Permits {
    pub(crate) fn new(bound: usize) -> Self {
        Permits {
            left: Arc::new(AtomicUsize::new(bound)),
        }
    }

    /// A permit, unless all are taken.
    pub(crate) fn take(&self) -> Option<Permit> {
        let taken = self
            .left
            .fetch_update(Ordering::Relaxed, Ordering::Relaxed, |left| {
                left.checked_sub(1)
            });
        taken.is_ok().then(|| Permit {
            left: Arc::clone(&self.left),
        })
    }
}

impl Drop for Permit {
    fn drop(&mut self) {
        self.left.fetch_add(1, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn there_are_as_many_as_the_bound_and_each_comes_back() {
        let permits = Permits::new(2);
        let first = permits.take();
        let second = permits.take();
        assert!(first.is_some() && second.is_some());
        assert!(permits.take().is_none());
        drop(first);
        let third = permits.take();
        assert!(third.is_some() && permits.take().is_none());
    }
}
