//! Who may send bytes to a port.
//!
//! Envoy's filter for policies on bytes judges the first byte of a client; by then a server that speaks first has been connected
//! to, and heard. So who may send bytes is decided in the TLS handshake: it is a set of identities, since nothing else of
//! bytes can be judged. For callers without an identity the decision is the same for all of them.

use std::collections::BTreeMap;

use envoy_types::pb::envoy::r#type::matcher::v3::RegexMatcher;
use envoy_types::pb::envoy::r#type::matcher::v3::string_matcher::MatchPattern;
use heddle_model::{Access, Guard, PolicyAction, PolicyRule, Sources};

use super::regex::quoted;
use crate::gateway::Roles;

/// Whether callers without an identity may send bytes to a port.
pub(crate) fn is_open_to_anonymous(guard: &Guard, port: u16) -> bool {
    guard.decide(&Access::flow(None, port)).allowed
}

/// The SPIFFE ids that may send bytes to a port, one of which is to match; none for no caller.
pub(crate) fn identities(guard: &Guard, port: u16, roles: &Roles) -> Vec<MatchPattern> {
    if !guard.is_complete() {
        return Vec::new();
    }
    let of = |action: PolicyAction| {
        let policies = guard.policies().iter();
        let policies = policies.filter(move |policy| policy.action == action && !policy.dry_run);
        let rules = policies.flat_map(|policy| &policy.rules);
        rules.filter(move |rule| rule.ports.is_empty() || rule.ports.contains(&port))
    };
    let mut denied = Identities::default();
    for rule in of(PolicyAction::Deny) {
        // What cannot be judged is refused: a condition on requests counts as met.
        match &rule.sources {
            None => return Vec::new(),
            Some(sources) => denied.add(sources),
        }
    }
    let mut policies = guard.policies().iter();
    let is_limited = policies.any(|one| one.action == PolicyAction::Allow && !one.dry_run);
    let any = format!("spiffe://{}/ns/", roles.trust_domain);
    let mut allowed = Identities::default();
    // Bytes never meet a condition on requests.
    let allowing: Vec<&PolicyRule> = of(PolicyAction::Allow)
        .filter(|rule| rule.http.is_none())
        .collect();
    if !is_limited || allowing.iter().any(|rule| rule.sources.is_none()) {
        allowed.beginnings.push(any);
    } else {
        let sources = allowing.iter().filter_map(|rule| rule.sources.as_ref());
        sources.for_each(|sources| allowed.add(sources));
    }
    let mut accepted = allowed.without(&denied);
    // A gateway has judged the caller of bytes, which it cannot name.
    let is_accepted = |id: &String| allowed.has(id) && !denied.has(id);
    let mut lazy = roles.lazy.iter().map(|account| roles.id(account));
    if lazy.any(|id| is_accepted(&id)) {
        let gateways = roles.gateways.iter().map(|account| roles.id(account));
        let gateways = gateways.filter(|id| !denied.has(id));
        accepted.extend(gateways.map(MatchPattern::Exact));
    }
    accepted
}

/// A set of identities: these, and all with these beginnings.
#[derive(Debug, Default)]
struct Identities {
    exact: Vec<String>,
    beginnings: Vec<String>,
}

impl Identities {
    fn add(&mut self, sources: &Sources) {
        let exact = sources.identities.iter();
        self.exact.extend(exact.map(ToString::to_string));
        let beginnings = sources.namespaces.iter();
        let beginnings =
            beginnings.map(|one| format!("spiffe://{}/ns/{}/sa/", one.trust_domain, one.namespace));
        self.beginnings.extend(beginnings);
    }

    fn has(&self, id: &str) -> bool {
        self.exact.iter().any(|one| one == id)
            || self.beginnings.iter().any(|one| id.starts_with(one))
    }

    /// What matches those of this set that are not in the other one.
    fn without(&self, other: &Identities) -> Vec<MatchPattern> {
        let exact = self.exact.iter().filter(|id| !other.has(id));
        let exact = exact.cloned().map(MatchPattern::Exact);
        let beginnings = self.beginnings.iter();
        let beginnings = beginnings.filter_map(|beginning| other.rest_of(beginning));
        exact.chain(beginnings).collect()
    }

    /// What matches the ids with a beginning that are not in this set; `None` if all are.
    fn rest_of(&self, beginning: &str) -> Option<MatchPattern> {
        if self.beginnings.iter().any(|one| beginning.starts_with(one)) {
            return None;
        }
        let mut cut = Tree::default();
        let exact = self
            .exact
            .iter()
            .filter_map(|id| id.strip_prefix(beginning));
        exact.for_each(|rest| cut.at(rest).is_end = true);
        let wider = self.beginnings.iter();
        let wider = wider.filter_map(|id| id.strip_prefix(beginning));
        wider.for_each(|rest| cut.at(rest).is_beginning = true);
        if cut.children.is_empty() && !cut.is_end {
            return Some(MatchPattern::Prefix(beginning.to_owned()));
        }
        let regex = format!("{}(?:{})", quoted(beginning), cut.others()?);
        Some(MatchPattern::SafeRegex(RegexMatcher {
            regex,
            ..RegexMatcher::default()
        }))
    }
}

/// Texts by their characters.
#[derive(Debug, Default)]
struct Tree {
    /// The text to here is one of them.
    is_end: bool,
    /// So are all that begin with it.
    is_beginning: bool,
    children: BTreeMap<char, Tree>,
}

impl Tree {
    fn at(&mut self, text: &str) -> &mut Tree {
        let mut here = self;
        for char in text.chars() {
            here = here.children.entry(char).or_default();
        }
        here
    }

    /// An expression for all texts that are not in the tree; `None` if all are.
    fn others(&self) -> Option<String> {
        if self.is_beginning {
            return None;
        }
        let mut ways = Vec::new();
        if !self.is_end {
            ways.push(String::new());
        }
        let quote = |char: &char| quoted(char.encode_utf8(&mut [0; 4]));
        ways.push(match self.children.is_empty() {
            true => ".+".to_owned(),
            false => {
                let next: String = self.children.keys().map(quote).collect();
                format!("[^{next}].*")
            }
        });
        for (char, child) in &self.children {
            let others = child.others();
            ways.extend(others.map(|others| format!("{}(?:{others})", quote(char))));
        }
        Some(ways.join("|"))
    }
}
