//! Finds the Worker that has a link's session.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};

use foldhash::fast::RandomState;
use heddle_wire::link::Token;

use super::Intake;

/// Maps each link session of the process to its Worker: a link that was cut may reconnect to any Worker.
#[derive(Debug, Clone, Default)]
pub(crate) struct Sessions(Arc<Mutex<HashMap<Token, Intake, RandomState>>>);

impl Sessions {
    /// The intake of the session's Worker. Called when a link is made or reconnects, never for a stream.
    pub(crate) fn find(&self, token: Token) -> Option<Intake> {
        let all = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        all.get(&token).cloned()
    }

    pub(crate) fn add(&self, token: Token, intake: Intake) {
        let mut all = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        all.insert(token, intake);
    }

    pub(crate) fn remove(&self, token: Token) {
        let mut all = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        all.remove(&token);
    }
}
