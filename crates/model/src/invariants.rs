//! What a mesh promises, checked.
//!
//! The types of this crate cannot say everything that their documentation promises. Tests and
//! fuzzing hold what a compiler made against the promises; a proxy relies on them and does not look.

use std::collections::BTreeSet;

use crate::{
    BackendTarget, Filters, HeaderEdits, Mesh, Outcome, PathMatch, PathRewrite, RouteMatch,
    RouteRule, Service, ServicePort, Workload,
};

#[cfg(test)]
mod tests;

impl Mesh {
    /// Checks the promises that the documentation of this crate makes.
    ///
    /// # Errors
    /// The first promise that is broken, and where.
    pub fn check_invariants(&self) -> Result<(), String> {
        increasing(&self.services, |service| &service.name, "services")?;
        increasing(&self.workloads, |workload| &workload.name, "workloads")?;
        for workload in &self.workloads {
            check_workload(workload).map_err(|broken| format!("{}: {broken}", workload.name))?;
        }
        for service in &self.services {
            self.check_service(service)
                .map_err(|broken| format!("{}: {broken}", service.name))?;
        }
        Ok(())
    }

    fn check_service(&self, service: &Service) -> Result<(), String> {
        increasing(&service.ports, |port| &port.port, "ports")?;
        for port in &service.ports {
            self.check_port(port)
                .map_err(|broken| format!("port {}: {broken}", port.port))?;
        }
        Ok(())
    }

    fn check_port(&self, port: &ServicePort) -> Result<(), String> {
        ensure(port.port > 0, "its number is 0")?;
        increasing(&port.endpoints, |endpoint| &endpoint.address, "endpoints")?;
        for endpoint in &port.endpoints {
            ensure(endpoint.weight > 0, "an endpoint has no weight")?;
            ensure(endpoint.address.port() > 0, "an endpoint has port 0")?;
            let known = endpoint
                .workload
                .as_ref()
                .is_none_or(|name| self.workload(name).is_some());
            ensure(known, "an endpoint's workload is unknown")?;
        }
        for rule in port
            .routes
            .iter()
            .chain(port.consumer_routes.values())
            .flatten()
        {
            self.check_rule(rule)
                .map_err(|broken| format!("{} {}: {broken}", rule.name, rule.rule))?;
        }
        Ok(())
    }

    fn check_rule(&self, rule: &RouteRule) -> Result<(), String> {
        check_match(&rule.matcher)?;
        let action = &*rule.action;
        check_filters(&action.filters, &rule.matcher.path)?;
        if let (Some(request), Some(backend)) =
            (action.request_timeout_ms, action.backend_timeout_ms)
        {
            ensure(
                request == 0 || backend <= request,
                "an attempt may outlast its request",
            )?;
        }
        match &action.outcome {
            Outcome::Redirect(redirect) => {
                let known = matches!(redirect.status, 301 | 302 | 303 | 307 | 308);
                ensure(known, "a redirect with another status")?;
                check_rewrite(redirect.path.as_ref(), &rule.matcher.path)?;
                ensure(
                    action.filters.rewrite.is_none(),
                    "a redirect that is rewritten",
                )
            }
            Outcome::Forward(backends) => {
                for backend in backends {
                    ensure(
                        backend.weight <= 1_000_000,
                        "a backend's weight is too high",
                    )?;
                    check_filters(&backend.filters, &rule.matcher.path)?;
                    if let BackendTarget::Service { service, port } = &backend.target {
                        let found = self
                            .service(service)
                            .and_then(|service| service.port(*port));
                        ensure(found.is_some(), "a backend does not exist")?;
                    }
                }
                Ok(())
            }
        }
    }
}

fn ensure(holds: bool, broken: &str) -> Result<(), String> {
    if holds {
        Ok(())
    } else {
        Err(broken.to_owned())
    }
}

fn increasing<T, K: Ord>(items: &[T], key: impl Fn(&T) -> &K, what: &str) -> Result<(), String> {
    let holds = items.windows(2).all(|pair| key(&pair[0]) < key(&pair[1]));
    ensure(
        holds,
        &format!("the {what} are not in order, or one is there twice"),
    )
}

fn check_workload(workload: &Workload) -> Result<(), String> {
    ensure(workload.weight > 0, "it has no weight")?;
    ensure(
        workload.ports.iter().all(|port| port.port > 0),
        "it has a port 0",
    )?;
    let Some(command) = &workload.command else {
        return Ok(());
    };
    ensure(
        command
            .argv
            .first()
            .is_some_and(|program| !program.is_empty()),
        "no program",
    )?;
    let absolute = command
        .working_dir
        .as_ref()
        .is_none_or(|dir| dir.is_absolute());
    ensure(absolute, "its working directory is relative")
}

fn check_match(matcher: &RouteMatch) -> Result<(), String> {
    match &matcher.path {
        PathMatch::Exact(path) => ensure(path.starts_with('/'), "a path is not absolute")?,
        PathMatch::Prefix(prefix) => check_prefix(prefix)?,
    }
    for (name, _) in &matcher.headers {
        ensure(
            is_token(name) && *name == name.to_ascii_lowercase(),
            "a header's name",
        )?;
    }
    for pairs in [&matcher.headers, &matcher.query] {
        let names: BTreeSet<&str> = pairs.iter().map(|(name, _)| name.as_str()).collect();
        ensure(names.len() == pairs.len(), "two conditions on one name")?;
    }
    Ok(())
}

fn check_prefix(prefix: &str) -> Result<(), String> {
    let holds = prefix.is_empty() || (prefix.starts_with('/') && !prefix.ends_with('/'));
    ensure(
        holds,
        "a prefix neither is empty nor starts, and does not end, with a slash",
    )
}

fn check_filters(filters: &Filters, matched: &PathMatch) -> Result<(), String> {
    check_edits(&filters.request)?;
    check_edits(&filters.response)?;
    let path = filters
        .rewrite
        .as_ref()
        .and_then(|rewrite| rewrite.path.as_ref());
    check_rewrite(path, matched)
}

fn check_rewrite(path: Option<&PathRewrite>, matched: &PathMatch) -> Result<(), String> {
    match path {
        None => Ok(()),
        Some(PathRewrite::ReplaceFull(full)) => ensure(full.starts_with('/'), "a new path"),
        Some(PathRewrite::ReplacePrefix(prefix)) => {
            check_prefix(prefix)?;
            ensure(
                matches!(matched, PathMatch::Prefix(_)),
                "a prefix replaced that none matched",
            )
        }
    }
}

fn check_edits(edits: &HeaderEdits) -> Result<(), String> {
    let written = edits.set.iter().chain(&edits.add);
    let valid = |value: &str| {
        value
            .bytes()
            .all(|byte| byte == b'\t' || (b' '..=b'~').contains(&byte))
            && value.trim_matches([' ', '\t']) == value
    };
    ensure(
        written.clone().all(|(_, value)| valid(value)),
        "a header's value",
    )?;
    let names: Vec<&str> = written
        .map(|(name, _)| name.as_str())
        .chain(edits.remove.iter().map(String::as_str))
        .collect();
    ensure(names.iter().all(|name| is_token(name)), "a header's name")?;
    let framing = [
        "connection",
        "content-length",
        "te",
        "trailer",
        "transfer-encoding",
        "upgrade",
    ];
    let frames = |name: &&str| framing.iter().any(|own| own.eq_ignore_ascii_case(name));
    ensure(
        !names.iter().any(frames),
        "a header that frames the message is edited",
    )
}

fn is_token(name: &str) -> bool {
    !name.is_empty()
        && name
            .bytes()
            .all(|b| b.is_ascii_alphanumeric() || b"!#$%&'*+-.^_`|~".contains(&b))
}
