//! A limit that never refuses a newcomer: when it is reached, the oldest holder is evicted.
//!
//! Otherwise a client that takes all places and stays silent would lock out everyone else until the places time out.
//! An honest client is done before it becomes the oldest.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use tokio::sync::oneshot;

#[cfg(test)]
mod tests;

/// A limited number of places.
#[derive(Debug)]
pub(super) struct Places {
    most: usize,
    taken: Mutex<Taken>,
}

#[derive(Debug, Default)]
struct Taken {
    /// The number of the last holder. The lowest number in `holders` is the oldest.
    count: u64,
    holders: BTreeMap<u64, Holder>,
}

#[derive(Debug)]
struct Holder {
    /// Calls in progress.
    calls: usize,
    /// Dropping it completes the holder's [`Leave`].
    _leave: oneshot::Sender<()>,
}

/// A place of one holder; free again when it is dropped.
#[derive(Debug)]
pub(super) struct Place {
    places: Arc<Places>,
    number: u64,
}

/// Completes when the holder is evicted.
pub(super) struct Leave(oneshot::Receiver<()>);

/// Reference to the holder of a place, for marking it as busy or evicting it.
#[derive(Debug, Clone)]
pub(super) struct Holding {
    places: Arc<Places>,
    number: u64,
}

/// Marks a holder as busy until it is dropped: idle holders are evicted first.
#[derive(Debug)]
pub(super) struct UnderWay(Holding);

impl Places {
    /// Makes `most` places, at least one.
    pub(super) fn new(most: usize) -> Arc<Self> {
        Arc::new(Self {
            most: most.max(1),
            taken: Mutex::default(),
        })
    }

    /// Takes a place. At the limit, the oldest idle holder is evicted, or the oldest of all if every holder is busy.
    /// The flag says whether one was evicted.
    pub(super) fn take(self: &Arc<Self>) -> (Place, Leave, bool) {
        let (leave, left) = oneshot::channel();
        let mut taken = self.lock();
        let is_full = taken.holders.len() >= self.most;
        if is_full {
            let mut idle = taken.holders.iter().filter(|(_, holder)| holder.calls == 0);
            let idle = idle.next().map(|(number, _)| *number);
            let oldest = idle.or_else(|| taken.holders.keys().next().copied());
            oldest.and_then(|oldest| taken.holders.remove(&oldest));
        }
        taken.count += 1;
        let number = taken.count;
        let holder = Holder {
            calls: 0,
            _leave: leave,
        };
        taken.holders.insert(number, holder);
        let place = Place {
            places: Arc::clone(self),
            number,
        };
        (place, Leave(left), is_full)
    }

    fn lock(&self) -> MutexGuard<'_, Taken> {
        // A panic cannot leave this state half changed, so a poisoned lock is safe to use.
        self.taken.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Place {
    /// A reference to this holder, for [`Holding::call`].
    pub(super) fn holding(&self) -> Holding {
        Holding {
            places: Arc::clone(&self.places),
            number: self.number,
        }
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        self.places.lock().holders.remove(&self.number);
    }
}

impl Leave {
    /// Waits until the holder is evicted.
    pub(super) async fn told(self) {
        // Nothing is ever sent: dropping the sender is the signal.
        let _ = self.0.await;
    }
}

impl Holding {
    /// Evicts the holder.
    pub(super) fn evict(&self) {
        self.places.lock().holders.remove(&self.number);
    }

    /// Begins a call, which ends when the returned [`UnderWay`] is dropped.
    pub(super) fn call(&self) -> UnderWay {
        if let Some(holder) = self.places.lock().holders.get_mut(&self.number) {
            holder.calls += 1;
        }
        UnderWay(self.clone())
    }
}

impl Drop for UnderWay {
    fn drop(&mut self) {
        let Holding { places, number } = &self.0;
        if let Some(holder) = places.lock().holders.get_mut(number) {
            holder.calls = holder.calls.saturating_sub(1);
        }
    }
}
