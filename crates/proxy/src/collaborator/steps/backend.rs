//! Chooses one of a rule's backends.

use super::find::is_supported;
use super::{CONTINUE, Step, StepContext};
use crate::failure::Reason;
use crate::route::Target;

/// Chooses a backend at random by the weights, if a rule matched.
pub(super) fn choose(context: &mut StepContext<'_>) -> Step {
    let snapshot = &context.decision.bound.snapshot;
    let (Some(port), Some(rule)) = (context.decision.port, context.decision.rule) else {
        return CONTINUE;
    };
    let action = &snapshot.port(port).rule(rule).action;
    let draw = match &*action.backends {
        [_] => 0,
        _ => (context.worker.random.borrow_mut()).below(action.total_weight),
    };
    let (index, backend) = action.backend(draw).ok_or(Reason::NoBackend)?;
    // A rule has far fewer than 2^32 backends.
    context.decision.backend = index as u32;
    let Target::Port(port) = backend.target else {
        return Err(Reason::NoBackend.into());
    };
    if !is_supported(snapshot.port(port).protocol) {
        return Err(Reason::ProtocolNotSupported.into());
    }
    context.decision.target = Some(port);
    CONTINUE
}
