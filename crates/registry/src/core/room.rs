//! How much is held, and for which namespace.
//!
//! A namespace has a share of the room and no more, so that a client that writes into one leaves the others theirs.
//! Keys that are no provider's have a small share of their own: they are held to be shown, and for nothing else.

use std::collections::BTreeMap;

use heddle_model::Namespace;

use heddle_compile::registered::Layout;

/// So many keys, and bytes of keys and right values.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) struct Amount {
    pub(super) keys: usize,
    pub(super) bytes: usize,
}

impl Amount {
    /// Whether there may be one more key, with so many bytes.
    fn has_room_beside(self, taken: Amount, bytes: usize) -> bool {
        taken.keys < self.keys && taken.bytes + bytes <= self.bytes
    }
}

/// What is held of all namespaces together.
pub(super) const MOST: Amount = Amount {
    keys: 10_000,
    bytes: 32 << 20,
};
/// What is held of one namespace.
pub(super) const MOST_OF_NAMESPACE: Amount = Amount {
    keys: 2_000,
    bytes: 4 << 20,
};
/// What is held of keys that are no provider's, beside the others.
pub(super) const MOST_OF_STRAY: Amount = Amount {
    keys: 100,
    bytes: 1 << 20,
};

/// Whose room a key takes.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Share {
    /// That of keys that are no provider's.
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

/// Where there is no room.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Full {
    /// In a share, though there may be some in others.
    Share(Share),
    All,
}

#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Room {
    /// What all namespaces have taken.
    all: Amount,
    shares: BTreeMap<Share, Amount>,
}

impl Room {
    /// Where there is no room for one more key with so many bytes.
    pub(super) fn lacking(&self, share: &Share, bytes: usize) -> Option<Full> {
        let taken = self.shares.get(share).copied().unwrap_or_default();
        if !share.most().has_room_beside(taken, bytes) {
            return Some(Full::Share(share.clone()));
        }
        let has_room = *share == Share::Stray || MOST.has_room_beside(self.all, bytes);
        (!has_room).then_some(Full::All)
    }

    /// Takes the room of one key.
    pub(super) fn take(&mut self, share: Share, bytes: usize) {
        if share != Share::Stray {
            self.all.keys += 1;
            self.all.bytes += bytes;
        }
        let taken = self.shares.entry(share).or_default();
        taken.keys += 1;
        taken.bytes += bytes;
    }

    /// Gives back what a key has taken.
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

    /// Whether nothing of a share is taken.
    pub(super) fn is_free(&self, share: &Share) -> bool {
        !self.shares.contains_key(share)
    }

    /// What holds whatever happens.
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
