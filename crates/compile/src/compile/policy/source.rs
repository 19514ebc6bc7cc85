//! The callers that a source names.

use heddle_model::{Name, Namespace, ServiceAccountName, SourceNamespace, Sources, SpiffeId};

use super::PolicyContext;
use crate::compile::{Scope, did_you_mean};
use crate::manifest::Kind;
use crate::manifest::node::FieldPath;

/// The account that every namespace has, even without a manifest.
const DEFAULT_ACCOUNT: &str = "default";

/// Adds a service account of the mesh's own trust domain.
pub(super) fn add_account(
    context: &PolicyContext<'_>,
    account: ServiceAccountName,
    at: &FieldPath,
    to: &mut Sources,
    scope: &mut Scope<'_>,
) {
    let id = SpiffeId::workload(context.trust_domain.clone(), account);
    add_identity(context, id, at, to, scope);
}

/// Adds an identity, which must be one that a workload of this mesh can prove.
pub(super) fn add_identity(
    context: &PolicyContext<'_>,
    id: SpiffeId,
    at: &FieldPath,
    to: &mut Sources,
    scope: &mut Scope<'_>,
) {
    if id.trust_domain != *context.trust_domain {
        scope.error(
            at,
            format!(
                "no caller can prove an identity of trust domain {} here: this mesh is {}",
                id.trust_domain, context.trust_domain
            ),
            "write an identity of this trust domain",
        );
        return;
    }
    let Some(account) = id.service_account() else {
        let remedy = "write spiffe://TRUST-DOMAIN/ns/NAMESPACE/sa/NAME";
        return scope.error(at, "no workload has this identity", remedy);
    };
    if id.server_name().is_none() {
        let reason = "this identity is too long to be proved in TLS";
        return scope.error(at, reason, "shorten the names");
    }
    warn_unknown(context, account, at, scope);
    to.identities.push(id);
}

fn warn_unknown(
    context: &PolicyContext<'_>,
    account: &ServiceAccountName,
    at: &FieldPath,
    scope: &mut Scope<'_>,
) {
    let accounts = &context.index.accounts;
    if accounts.contains(account)
        || account.name.as_str() == DEFAULT_ACCOUNT
        || scope.is_refused(Kind::ServiceAccount, &account.namespace, &account.name)
    {
        return;
    }
    let names = accounts
        .iter()
        .filter(|known| known.namespace == account.namespace)
        .map(|known| known.name.as_str());
    let remedy = did_you_mean(account.name.as_str(), names, "add the ServiceAccount");
    let reason = format!("there is no ServiceAccount {account}: this source matches no caller");
    scope.warn(at, reason, remedy);
}

/// Adds every service account of a namespace.
pub(super) fn add_namespace(context: &PolicyContext<'_>, namespace: Namespace, to: &mut Sources) {
    to.namespaces.push(SourceNamespace {
        trust_domain: context.trust_domain.clone(),
        namespace,
    });
}

/// The written namespace, or else the policy's own.
pub(super) fn namespace(
    context: &PolicyContext<'_>,
    written: Option<&str>,
    at: &FieldPath,
    scope: &mut Scope<'_>,
) -> Option<Namespace> {
    let Some(text) = written.filter(|text| !text.is_empty()) else {
        return Some(context.object.namespace.clone());
    };
    Namespace::parse(text)
        .map_err(|error| scope.error(at, error.to_string(), "write the namespace's name"))
        .ok()
}

/// The name of a service account.
pub(super) fn name(text: &str, at: &FieldPath, scope: &mut Scope<'_>) -> Option<Name> {
    Name::parse(text)
        .map_err(|error| scope.error(at, error.to_string(), "write the account's name"))
        .ok()
}

/// Sorts sources and removes duplicates.
pub(super) fn settle(sources: &mut Sources) {
    sources.identities.sort();
    sources.identities.dedup();
    sources.namespaces.sort();
    sources.namespaces.dedup();
}
