//! The states of a registration, and which changes the operator hears of.
//!
//! ```text
//!                registered                    lease ended, put again
//!   starting ───────────────► registered ──────────────────────────────► registered
//!      │  │                     ▲    │
//!      │  └─ away, taken ─► away, taken ◄── no answer, another has the key
//!      └─ refused ─► over
//! ```
//!
//! No network and no clock: the caller reports events, and this state machine returns the news for the operator. Each
//! state is reported once, however often it recurs.

use std::fmt;
use std::time::Duration;

use super::access::Trouble;

#[cfg(test)]
mod tests;

/// The shortest time to live: etcd lengthens a shorter one. The longest, [`MAX_TTL`], bounds for how long a dead
/// provider is still called.
pub const MIN_TTL: Duration = Duration::from_secs(2);
/// See [`MIN_TTL`].
pub const MAX_TTL: Duration = Duration::from_secs(3_600);

/// A change that the operator of a registration should hear of.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum News {
    /// The provider is registered for the first time.
    Registered,
    /// The provider is registered again after an interruption; the text is the cause.
    Again(&'static str),
    /// etcd does not answer, or not correctly. The provider stays registered until its lease ends.
    Away(String),
    /// Another provider holds the key; the registration waits until that is gone.
    Taken,
}

impl fmt::Display for News {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            News::Registered => f.write_str("registered"),
            News::Again(why) => write!(f, "registered again: {why}"),
            News::Away(why) => write!(f, "etcd is not reached, retrying: {why}"),
            News::Taken => f.write_str(
                "another provider is registered under this name: waiting until it is gone, or give it \
                 another with --name",
            ),
        }
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum RegistrationState {
    Starting,
    Registered,
    Away,
    Taken,
}

/// The result of writing the registration's key.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Written {
    /// The key was there with our lease; nothing was written.
    Kept,
    /// The key was missing.
    Anew,
    /// The key had the lease of an earlier run, and was overwritten.
    Over,
}

#[derive(Debug)]
pub(super) struct Life {
    state: RegistrationState,
    was_registered: bool,
    /// The lease has ended since the last successful registration.
    has_lost_lease: bool,
}

impl Life {
    pub(super) fn new() -> Self {
        Life {
            state: RegistrationState::Starting,
            was_registered: false,
            has_lost_lease: false,
        }
    }

    /// Whether it may overwrite a key whose holder has the same address, which is an earlier run of this provider.
    /// After the first registration such a holder is a live one, since it took the key from this run.
    pub(super) fn may_take_over(&self) -> bool {
        !self.was_registered
    }

    /// The lease has ended, and etcd removed the key with it.
    pub(super) fn lease_ended(&mut self) {
        self.has_lost_lease |= self.was_registered;
    }

    /// The key is in etcd with our lease.
    pub(super) fn registered(&mut self, written: Written) -> Option<News> {
        let before = std::mem::replace(&mut self.state, RegistrationState::Registered);
        let lost_lease = std::mem::take(&mut self.has_lost_lease);
        if !std::mem::replace(&mut self.was_registered, true) {
            return Some(News::Registered);
        }
        match (before, written) {
            _ if lost_lease => Some(News::Again("its lease had ended")),
            (_, Written::Anew) => Some(News::Again("its key was gone")),
            (RegistrationState::Away, _) => {
                Some(News::Again("etcd is reached, and its lease had not ended"))
            }
            (RegistrationState::Taken, _) => Some(News::Again("the other provider is gone")),
            _ => None,
        }
    }

    /// Another provider holds the key.
    pub(super) fn taken(&mut self) -> Option<News> {
        let before = std::mem::replace(&mut self.state, RegistrationState::Taken);
        (before != RegistrationState::Taken).then_some(News::Taken)
    }

    /// A connection or a call failed.
    ///
    /// # Errors
    /// The reason for giving up: it never worked, and the operator has to change something first.
    pub(super) fn failed(&mut self, trouble: &Trouble) -> Result<Option<News>, String> {
        if let (Trouble::Ours(why), false) = (trouble, self.was_registered) {
            return Err(why.clone());
        }
        let before = std::mem::replace(&mut self.state, RegistrationState::Away);
        let is_news = before != RegistrationState::Away;
        Ok(is_news.then(|| News::Away(trouble.to_string())))
    }
}
