//! Compiles every folder in `fixtures`, and compares the result with its `expected.txt`: each problem as displayed,
//! then the mesh if there is one. To accept new results, run the test with `HEDDLE_ACCEPT=1` and read the difference.

use std::fmt::Write as _;
use std::fs;
use std::path::{Path, PathBuf};

use heddle_model::{
    Backend, BackendTarget, Balancing, Filters, HeaderEdits, Mesh, Mode, Outcome, PathMatch,
    Policy, Redirect, RouteAction, RouteRule, ServicePort, Workload,
};

use crate::load;

mod balancing;
mod honoured;
mod precedence;
mod qos;
mod ranges;
mod values;

fn fixtures() -> Vec<PathBuf> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("fixtures");
    let mut folders: Vec<PathBuf> = fs::read_dir(root)
        .unwrap()
        .map(|entry| entry.unwrap().path())
        .collect();
    folders.sort();
    folders
}

#[test]
fn fixtures_come_to_what_they_are_expected_to() {
    let accept = std::env::var_os("HEDDLE_ACCEPT").is_some();
    let mut differing = Vec::new();
    for folder in fixtures() {
        let actual = outcome(&folder);
        let file = folder.join("expected.txt");
        if accept {
            fs::write(&file, &actual).unwrap();
        }
        let expected = fs::read_to_string(&file).unwrap_or_default();
        if actual != expected {
            differing.push(format!(
                "{}\n{}",
                folder.display(),
                difference(&expected, &actual)
            ));
        }
    }
    assert!(differing.is_empty(), "\n{}", differing.join("\n"));
}

#[test]
fn good_fixtures_are_served_and_bad_ones_are_not() {
    for folder in fixtures() {
        let is_good = folder
            .file_name()
            .unwrap()
            .to_str()
            .unwrap()
            .starts_with("good-");
        let (mesh, report) = load(&folder);
        assert_eq!(mesh.is_some(), is_good, "{}", folder.display());
        assert_eq!(report.has_errors(), !is_good, "{}", folder.display());
        if let Some(mesh) = mesh {
            assert_eq!(mesh.check_invariants(), Ok(()), "{}", folder.display());
        }
    }
}

/// Every error names its place, and every problem has a remedy unless the reason implies it.
#[test]
fn every_problem_has_a_place() {
    for folder in fixtures() {
        for problem in load(&folder).1.problems {
            assert!(problem.origin.line().is_some(), "{problem}");
            assert!(!problem.reason.is_empty(), "{problem}");
        }
    }
}

#[test]
fn a_program_whose_name_has_a_space_may_be_there() {
    let dir = tempfile::TempDir::new().unwrap();
    fs::write(dir.path().join("a program"), "").unwrap();
    for (program, warnings) in [("./a program", 0), ("./no program", 1), ("no program", 1)] {
        let manifest = format!(
            "apiVersion: heddle.dev/v1alpha1\nkind: LocalWorkload\nmetadata: {{name: a}}\n\
             spec: {{address: 127.1.0.1, command: [\"{program}\"]}}\n"
        );
        fs::write(dir.path().join("a.yaml"), manifest).unwrap();
        let (mesh, report) = load(dir.path());
        assert!(mesh.is_some());
        assert_eq!(
            report.problems.len(),
            warnings,
            "{program}: {:?}",
            report.problems
        );
    }
}

#[test]
fn two_workloads_that_are_one_endpoint_are_said() {
    let workload = |name: &str| {
        format!(
            "---\napiVersion: heddle.dev/v1alpha1\nkind: LocalWorkload\n\
             metadata: {{name: {name}, labels: {{app: web}}}}\nspec: {{address: 127.1.0.1}}\n"
        )
    };
    let service = "apiVersion: v1\nkind: Service\nmetadata: {name: web}\n\
        spec: {selector: {app: web}, ports: [{port: 80, targetPort: 8080}]}\n";
    let text = format!("{service}{}{}", workload("a"), workload("b"));
    let (mesh, report) = crate::load_text(Path::new("a.yaml"), text.as_bytes());
    let endpoints = &mesh.unwrap().services[0].ports[0].endpoints;
    let counts_as = endpoints[0].workload.as_ref().unwrap().to_string();
    assert_eq!((endpoints.len(), counts_as.as_str()), (1, "default/b"));
    let [said] = &report.problems[..] else {
        panic!("{:?}", report.problems);
    };
    let expected = "port 8080 of 127.1.0.1 counts as LocalWorkload default/b's and not as LocalWorkload \
                    default/a's";
    assert!(said.reason.starts_with(expected), "{said}");
}

fn difference(expected: &str, actual: &str) -> String {
    let mut text = String::new();
    for line in expected
        .lines()
        .filter(|line| !actual.lines().any(|other| other == *line))
    {
        writeln!(text, "- {line}").unwrap();
    }
    for line in actual
        .lines()
        .filter(|line| !expected.lines().any(|other| other == *line))
    {
        writeln!(text, "+ {line}").unwrap();
    }
    if text.is_empty() {
        "the order of lines differs".to_owned()
    } else {
        text
    }
}

fn outcome(folder: &Path) -> String {
    let (mesh, report) = load(folder);
    let mut text = String::new();
    for problem in &report.problems {
        let shown = problem.to_string();
        // The repository's path is not part of the result.
        let shown = shown.replace(&format!("{}/", folder.display()), "");
        writeln!(text, "{shown}").unwrap();
    }
    writeln!(
        text,
        "{} objects, {} errors",
        report.objects,
        report.errors()
    )
    .unwrap();
    text.extend(report.skipped_summary().map(|summary| summary + "\n"));
    if let Some(mesh) = mesh {
        describe(&mesh, folder, &mut text);
    }
    text
}

fn describe(mesh: &Mesh, folder: &Path, text: &mut String) {
    for workload in &mesh.workloads {
        let ports: Vec<String> = workload
            .ports
            .iter()
            .map(|port| format!("{}:{}", port.name.as_deref().unwrap_or(""), port.port))
            .collect();
        writeln!(
            text,
            "workload {} at {} as {} ports [{}] weight {}",
            workload.name,
            workload.address,
            workload.service_account,
            ports.join(" "),
            workload.weight
        )
        .unwrap();
        if !workload.more_addresses.is_empty() {
            writeln!(text, "  and at {:?}", workload.more_addresses).unwrap();
        }
        describe_guard(workload, text);
        if let Some(command) = &workload.command {
            let place = command
                .working_dir
                .as_deref()
                .unwrap()
                .strip_prefix(folder)
                .unwrap();
            writeln!(
                text,
                "  runs {:?} env {:?} in {place:?}",
                command.argv, command.env
            )
            .unwrap();
        }
    }
    for policy in &mesh.policies {
        describe_policy(policy, text);
    }
    for service in &mesh.services {
        let headless = if service.headless { " headless" } else { "" };
        writeln!(
            text,
            "service {} {:?}{headless}",
            service.name, service.balancer
        )
        .unwrap();
        if !service.addresses.is_empty() {
            writeln!(text, "  called at {:?}", service.addresses).unwrap();
        }
        if service.balancing != Balancing::default() {
            writeln!(text, "  {:?}", service.balancing).unwrap();
        }
        for port in &service.ports {
            describe_port(port, text);
        }
    }
}

/// A workload's requirements on its callers, if any.
fn describe_guard(workload: &Workload, text: &mut String) {
    if let Some(node) = &workload.node {
        writeln!(text, "  on {node}").unwrap();
    }
    if workload.mode == Mode::Strict {
        writeln!(text, "  strict").unwrap();
    }
    for probe in &workload.probes {
        let path = probe.path.as_deref().unwrap_or("connect");
        writeln!(text, "  probe :{} {path} {:?}", probe.port, probe.query).unwrap();
    }
    for policy in &workload.policies {
        writeln!(text, "  under {policy}").unwrap();
    }
}

fn describe_policy(policy: &Policy, text: &mut String) {
    let dry_run = if policy.dry_run { " dry run" } else { "" };
    writeln!(text, "policy {} {:?}{dry_run}", policy.name, policy.action).unwrap();
    for rule in &policy.rules {
        write!(text, "  #{}", rule.number).unwrap();
        match &rule.sources {
            None => write!(text, " from any caller").unwrap(),
            Some(sources) => {
                let namespaces = sources.namespaces.iter();
                let namespaces =
                    namespaces.map(|of| format!("{}/{}/*", of.trust_domain, of.namespace));
                let ids = sources.identities.iter().map(ToString::to_string);
                let all: Vec<String> = ids.chain(namespaces).collect();
                write!(text, " from [{}]", all.join(" ")).unwrap();
            }
        }
        if !rule.ports.is_empty() {
            write!(text, " ports {:?}", rule.ports).unwrap();
        }
        if let Some(http) = &rule.http {
            write!(text, " {:?}", http).unwrap();
        }
        writeln!(text).unwrap();
    }
}

fn describe_port(port: &ServicePort, text: &mut String) {
    let name = port.name.as_deref().unwrap_or("");
    writeln!(
        text,
        "  port {name}:{} {}",
        port.port,
        port.protocol.as_str()
    )
    .unwrap();
    for endpoint in &port.endpoints {
        let workload = endpoint
            .workload
            .as_ref()
            .map_or("outside".to_owned(), |w| w.to_string());
        let room = endpoint.max_requests;
        let room = room.map_or(String::new(), |room| format!(" takes {room}"));
        writeln!(
            text,
            "    {} weight {}{room} {workload}",
            endpoint.address, endpoint.weight
        )
        .unwrap();
    }
    let mut rules = |of: &str, rules: &[RouteRule]| {
        for rule in rules {
            let (matcher, action) = (matcher(rule), action(&rule.action));
            writeln!(
                text,
                "    {of} {}#{} {matcher} -> {action}",
                rule.name, rule.rule
            )
            .unwrap();
        }
    };
    rules("rule", port.routes.as_deref().unwrap_or_default());
    for (namespace, consumer_rules) in &port.consumer_routes {
        rules(&format!("for {namespace}:"), consumer_rules);
    }
}

fn matcher(rule: &RouteRule) -> String {
    let mut text = match &rule.matcher.path {
        PathMatch::Exact(path) => format!("={path}"),
        PathMatch::Prefix(path) => format!("{path}/*"),
    };
    text.extend(
        rule.matcher
            .method
            .as_ref()
            .map(|method| format!(" {method}")),
    );
    for (name, value) in &rule.matcher.headers {
        write!(text, " {name}:{value:?}").unwrap();
    }
    for (name, value) in &rule.matcher.query {
        write!(text, " ?{name}={value:?}").unwrap();
    }
    text
}

fn action(action: &RouteAction) -> String {
    let mut text = match &action.outcome {
        Outcome::Forward(backends) => {
            let backends: Vec<String> = backends.iter().map(backend).collect();
            format!("[{}]", backends.join(", "))
        }
        Outcome::Redirect(Redirect {
            scheme,
            hostname,
            path,
            port,
            status,
        }) => {
            format!("{status} {scheme:?} {hostname:?} {port:?} {path:?}")
        }
    };
    text.push_str(&filters(&action.filters));
    for (name, timeout) in [
        ("request", action.request_timeout_ms),
        ("backend", action.backend_timeout_ms),
    ] {
        text.extend(timeout.map(|timeout| format!(" {name} timeout {timeout} ms")));
    }
    text
}

fn backend(backend: &Backend) -> String {
    let target = match &backend.target {
        BackendTarget::Service { service, port } => format!("{service}:{port}"),
        BackendTarget::Unresolved { reason } => format!("unresolved ({reason})"),
    };
    format!("{target} {}{}", backend.weight, filters(&backend.filters))
}

fn filters(filters: &Filters) -> String {
    let edits = |name: &str, edits: &HeaderEdits| match edits.is_empty() {
        true => String::new(),
        false => {
            format!(
                " {name} set {:?} add {:?} remove {:?}",
                edits.set, edits.add, edits.remove
            )
        }
    };
    let mut text = edits("request", &filters.request) + &edits("response", &filters.response);
    text.extend(
        filters
            .rewrite
            .as_ref()
            .map(|rewrite| format!(" {rewrite:?}")),
    );
    text
}
