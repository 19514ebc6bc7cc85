//! Limits on what is held, in total and for each namespace.
//!
//! A namespace has a limited share, so that a client that floods one namespace does not use the room of the others.
//! Stray keys, which name no provider, have a small share of their own: they are held only to be reported.

use std::collections::BTreeMap;

use heddle_model::Namespace;

use heddle_compile::registered::Layout;

/// A count of keys, and of the bytes of keys and valid values.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) struct Amount {
    pub(super) keys: usize,
    pub(super) bytes: usize,
}

impl Amount {
    /// Whether one more key, of this many bytes, fits within these limits.
    fn has_room_beside(self, taken: Amount, bytes: usize) -> bool {
        taken.keys < self.keys && taken.bytes + bytes <= self.bytes
    }
}

/// The limit for all namespaces together.
pub(super) const MOST: Amount = Amount {
    keys: 150_000,
    bytes: 128 << 20,
};
/// The limit for one namespace.
pub(super) const MOST_OF_NAMESPACE: Amount = Amount {
    keys: 2_000,
    bytes: 4 << 20,
};
/// The limit for stray keys, beside the others.
pub(super) const MOST_OF_STRAY: Amount = Amount {
    keys: 100,
    bytes: 1 << 20,
};

/// The share against which a key counts.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Share {
    /// Keys that name no provider.
    Stray,
    Namespace(Namespace),
}

impl Share {
    pub(super) fn of(layout: &Layout, key: &[u8]) -> Self {
        let key = layout.provider(key);
        key.map_or(Share::Stray, |key| Share::Namespace(key.namespace))
    }

    pub(super) fn most(&self) -> Amount {
        match self {
            Share::Stray => MOST_OF_STRAY,
            Share::Namespace(_) => MOST_OF_NAMESPACE,
        }
    }
}

/// Where room is lacking.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Full {
    /// In one share, though others may have room.
    Share(Share),
    All,
}

#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Room {
    /// The total of all namespaces, without stray keys.
    all: Amount,
    shares: BTreeMap<Share, Amount>,
}

impl Room {
    /// Where room is lacking for one more key of this many bytes.
    pub(super) fn lacking(&self, share: &Share, bytes: usize) -> Option<Full> {
        let taken = self.shares.get(share).copied().unwrap_or_default();
        if !share.most().has_room_beside(taken, bytes) {
            return Some(Full::Share(share.clone()));
        }
        let has_room = *share == Share::Stray || MOST.has_room_beside(self.all, bytes);
        (!has_room).then_some(Full::All)
    }

    /// Counts one key.
    pub(super) fn take(&mut self, share: Share, bytes: usize) {
        if share != Share::Stray {
            self.all.keys += 1;
            self.all.bytes += bytes;
        }
        let taken = self.shares.entry(share).or_default();
        taken.keys += 1;
        taken.bytes += bytes;
    }

    /// Uncounts one key.
    pub(super) fn give_back(&mut self, share: &Share, bytes: usize) {
        if *share != Share::Stray {
            self.all.keys -= 1;
            self.all.bytes -= bytes;
        }
        if let Some(taken) = self.shares.get_mut(share) {
            taken.keys -= 1;
            taken.bytes -= bytes;
            if taken.keys == 0 {
                self.shares.remove(share);
            }
        }
    }

    /// Whether a share holds no key.
    pub(super) fn is_free(&self, share: &Share) -> bool {
        !self.shares.contains_key(share)
    }

    /// Checks what must be true after every step.
    #[cfg(any(test, feature = "fuzzing"))]
    pub(super) fn check_invariants(&self) {
        let within = |taken: Amount, most: Amount| {
            assert!(taken.keys <= most.keys && taken.bytes <= most.bytes);
        };
        within(self.all, MOST);
        self.shares
            .iter()
            .for_each(|(share, taken)| within(*taken, share.most()));
    }
}
