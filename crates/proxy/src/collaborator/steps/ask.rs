//! Questions to the control plane about what the configuration does not have.

use heddle_model::WorkloadName;

use super::Stop;
use crate::collaborator::wait::Wait;
use crate::failure::Reason;
use crate::route::Missing;
use crate::worker::Worker;

/// Asks the control plane, if that may know more.
pub(super) fn ask(
    worker: &Worker,
    caller: &WorkloadName,
    missing: Missing,
    absent: Reason,
) -> Stop {
    match missing {
        Missing::Absent => absent.into(),
        Missing::Unreadable => Reason::DestinationUnreadable.into(),
        Missing::Unasked(dependency) => {
            let questions = worker.settings.questions.as_ref();
            match worker.asking.ask(questions, dependency, caller) {
                Ok(question) => Stop::Wait(Wait::for_answer(question, &worker.settings.timeouts)),
                Err(reason) => reason.into(),
            }
        }
    }
}
