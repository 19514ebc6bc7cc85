//! Canonicalises the path, so that the rules and the endpoint see the same form.

use heddle_wire::http1::{TargetForm, path};

use super::{CONTINUE, Step, StepContext};
use crate::failure::Failure;

/// Brings the path into canonical form.
pub(super) fn canonicalise(context: &mut StepContext<'_>) -> Step {
    let strict = is_strict(context);
    let raw = context.head.path.of(context.buf);
    let canonical = &mut *context.path;
    canonical.clear();
    let is_rewritten = match context.head.form {
        TargetForm::Asterisk => false,
        _ => match path::canonicalise(raw, canonical, strict).map_err(Failure::request)? {
            path::Canonical::Verbatim => false,
            path::Canonical::Rewritten => true,
        },
    };
    if !is_rewritten {
        canonical.clear();
        canonical.extend_from_slice(raw);
    }
    CONTINUE
}

/// Whether an ambiguous path is refused, because a route or a policy examines paths.
fn is_strict(context: &StepContext<'_>) -> bool {
    let (door, snapshot) = (context.door, &context.decision.bound.snapshot);
    match context.decision.port {
        Some(port) if !door.is_fixed() => {
            let entry = snapshot.port(port);
            snapshot.strict_paths(port, entry.routes(door.namespace()))
        }
        _ => snapshot.guards.look_at_paths(door),
    }
}
