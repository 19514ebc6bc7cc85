//! Questions to the control plane about what the configuration does not have.

use super::Stop;
use crate::collaborator::wait::Wait;
use crate::failure::Reason;
use crate::questions::Asker;
use crate::route::Missing;
use crate::worker::Worker;

/// Asks the control plane, if that may know more.
pub(super) fn ask(
    worker: &Worker,
    asker: impl FnOnce() -> Asker,
    missing: Missing,
    absent: Reason,
) -> Stop {
    match missing {
        Missing::Absent => absent.into(),
        Missing::Unreadable => Reason::DestinationUnreadable.into(),
        Missing::Unasked(dependency) => {
            let questions = worker.settings.questions.as_ref();
            match worker.asking.ask(questions, dependency, &asker()) {
                Ok(question) => Stop::Wait(Wait::for_answer(question, &worker.settings.timeouts)),
                Err(reason) => reason.into(),
            }
        }
    }
}
