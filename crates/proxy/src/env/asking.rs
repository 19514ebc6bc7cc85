//! What the callers of one Worker ask about the mesh.

use std::cell::Cell;
use std::rc::Rc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::task::{Context, Poll};

use heddle_model::Dependency;

use crate::failure::Reason;
use crate::questions::{Asker, Questions, Ticket};
use crate::route::Snapshot;

static NEXT_ID: AtomicU64 = AtomicU64::new(0);

/// A Worker's open questions.
pub(crate) struct Asking {
    /// The Worker's number among those that ask.
    id: u64,
    open: Rc<Cell<usize>>,
}

/// A question of a connection or request, until it is dropped.
pub(crate) struct PendingQuestion {
    ticket: Ticket,
    open: Rc<Cell<usize>>,
}

impl Asking {
    pub(super) fn new() -> Self {
        Asking {
            id: NEXT_ID.fetch_add(1, Ordering::Relaxed),
            open: Rc::default(),
        }
    }

    /// Asks about something that the configuration does not have.
    ///
    /// # Errors
    /// When there will be no answer.
    pub(crate) fn ask(
        &self,
        questions: Option<&Questions>,
        dependency: Dependency,
        asker: &Asker,
    ) -> Result<PendingQuestion, Reason> {
        let questions = questions.ok_or(Reason::DiscoveryUnavailable)?;
        let ticket = questions.ask(dependency, asker, self.id)?;
        self.open.set(self.open.get() + 1);
        Ok(PendingQuestion {
            ticket,
            open: Rc::clone(&self.open),
        })
    }

    /// The Worker uses another configuration.
    pub(crate) fn applied(&self, questions: Option<&Questions>, snapshot: &Snapshot) {
        if let Some(questions) = questions.filter(|_| self.open.get() > 0) {
            questions.applied(self.id, |dependency| snapshot.knows(dependency));
        }
    }
}

impl PendingQuestion {
    /// Ready when the configuration has the answer, or with the reason why there will be none.
    pub(crate) fn poll(&self, cx: &mut Context<'_>) -> Poll<Result<(), Reason>> {
        self.ticket.poll(cx)
    }
}

impl Drop for PendingQuestion {
    fn drop(&mut self) {
        self.open.set(self.open.get() - 1);
    }
}
