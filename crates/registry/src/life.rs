//! What becomes of a registration, and what there is to say of it.
//!
//! ```text
//!                registered                    lease ended, put again
//!   starting ───────────────► registered ──────────────────────────────► registered
//!      │  │                     ▲    │
//!      │  └─ away, taken ─► away, taken ◄── no answer, another has the key
//!      └─ refused ─► over
//! ```
//!
//! No network and no clock: it is told what happened and says whether the operator should hear of it. Each state is
//! said once, however often it is found.

use std::fmt;
use std::time::Duration;

use super::access::Trouble;

#[cfg(test)]
mod tests;

/// The shortest and the longest time to live: etcd makes a shorter one longer, and who dies should not be called
/// for longer than an hour.
pub const MIN_TTL: Duration = Duration::from_secs(2);
/// See [`MIN_TTL`].
pub const MAX_TTL: Duration = Duration::from_secs(3_600);

/// What there is to say of a registration.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum News {
    /// It is registered.
    Registered,
    /// It was not for a time, and is again; why it was not.
    Again(&'static str),
    /// etcd does not answer, or not as it should. Until its lease ends it is still registered.
    Away(String),
    /// Another provider has its key; until that is gone it waits.
    Taken,
}

impl fmt::Display for News {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            News::Registered => f.write_str("registered"),
            News::Again(why) => write!(f, "registered again: {why}"),
            News::Away(why) => write!(f, "etcd is not reached, it is tried again: {why}"),
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

/// How its key came to be written.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Written {
    /// It stood there with our lease.
    Kept,
    /// It was not there.
    Anew,
    /// It had the lease of an earlier run.
    Over,
}

#[derive(Debug)]
pub(super) struct Life {
    state: RegistrationState,
    was_registered: bool,
    /// The lease ended since it was registered last.
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

    /// Whether it may take its key from another holder at the same address: that is an earlier run of ours. Once
    /// it was registered, a holder that took the key lives.
    pub(super) fn may_take_over(&self) -> bool {
        !self.was_registered
    }

    /// The lease has ended: the key went with it.
    pub(super) fn lease_ended(&mut self) {
        self.has_lost_lease |= self.was_registered;
    }

    /// Its key stands, with our lease.
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

    /// Another provider has its key.
    pub(super) fn taken(&mut self) -> Option<News> {
        let before = std::mem::replace(&mut self.state, RegistrationState::Taken);
        (before != RegistrationState::Taken).then_some(News::Taken)
    }

    /// Something did not work.
    ///
    /// # Errors
    /// Why it is over: it never worked, and the operator has to change something first.
    pub(super) fn failed(&mut self, trouble: &Trouble) -> Result<Option<News>, String> {
        if let (Trouble::Ours(why), false) = (trouble, self.was_registered) {
            return Err(why.clone());
        }
        let before = std::mem::replace(&mut self.state, RegistrationState::Away);
        let is_news = before != RegistrationState::Away;
        Ok(is_news.then(|| News::Away(trouble.to_string())))
    }
}
