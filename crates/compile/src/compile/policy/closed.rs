//! Compiles what stands for a policy that cannot be enforced as it is written: every call is denied.

use heddle_model::{PolicyAction, PolicyRule, Workload};

use super::{Draft, DraftRule, PolicyContext, selector};
use crate::compile::Scope;
use crate::manifest::closed::Selects;
use crate::manifest::node::FieldPath;

/// Denies every call to the workloads; `None` if they cannot be determined.
pub(super) fn compile(
    context: &PolicyContext<'_>,
    selects: &[Selects],
    looks_left: &mut usize,
    scope: &mut Scope<'_>,
) -> Option<Draft> {
    let at = FieldPath::of("spec");
    let candidates = selector::candidates(context, &at, looks_left, scope)?;
    let is_selected = |selects: &Selects, workload: &Workload| match selects {
        Selects::Namespace => true,
        Selects::Labels(labels) => selector::selects(labels, &workload.labels),
        Selects::Account(name) => {
            let account = &workload.service_account;
            (&account.namespace, &account.name) == (&context.object.namespace, name)
        }
    };
    let selected = candidates.iter();
    let selected = selected.filter(|workload| selects.iter().any(|one| is_selected(one, workload)));
    let every_call = PolicyRule {
        number: 0,
        sources: None,
        ports: Vec::new(),
        http: None,
    };
    Some(Draft {
        action: PolicyAction::Deny,
        dry_run: false,
        rules: vec![DraftRule {
            rule: every_call,
            ports_at: Vec::new(),
            http_at: FieldPath::default(),
        }],
        target: at,
        selected: selected.map(|workload| workload.name.clone()).collect(),
    })
}
