//! Places that are never all taken: who comes gets the place of who came first.
//!
//! A client that holds places and does nothing would otherwise keep all others out for as long as a place may be
//! held. An honest one is done in a moment, and is the newest for that long.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use tokio::sync::oneshot;

#[cfg(test)]
mod tests;

/// A bounded number of places.
#[derive(Debug)]
pub(super) struct Places {
    most: usize,
    taken: Mutex<Taken>,
}

#[derive(Debug, Default)]
struct Taken {
    /// Numbers those who come, so that the lowest number came first.
    count: u64,
    holders: BTreeMap<u64, Holder>,
}

#[derive(Debug)]
struct Holder {
    /// Calls that are under way.
    calls: usize,
    /// Tells the holder to go when it is dropped.
    _leave: oneshot::Sender<()>,
}

/// A place; free again when it is dropped.
#[derive(Debug)]
pub(super) struct Place {
    places: Arc<Places>,
    number: u64,
}

/// Comes to its end when another holder has the place.
pub(super) struct Leave(oneshot::Receiver<()>);

/// Who holds a place, for those who have to know that it is busy.
#[derive(Debug, Clone)]
pub(super) struct Holding {
    places: Arc<Places>,
    number: u64,
}

/// Spares a place while it lives.
#[derive(Debug)]
pub(super) struct UnderWay(Holding);

impl Places {
    /// So many places, at least one.
    pub(super) fn new(most: usize) -> Arc<Self> {
        Arc::new(Self {
            most: most.max(1),
            taken: Mutex::default(),
        })
    }

    /// Takes a place. When there is none, the oldest holder loses its own, one without a call under way
    /// if there is one; says whether that was so.
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
        // Nothing in here is left half done by a panic.
        self.taken.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Place {
    /// Who holds it.
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
    /// Waits until another holder has the place.
    pub(super) async fn told(self) {
        // Nothing is ever sent: that the sender is gone is what tells.
        let _ = self.0.await;
    }
}

impl Holding {
    /// Begins a call, which is over when what is returned is dropped.
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
