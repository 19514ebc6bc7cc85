//! Text form of a control plane's status.

use std::fmt::Write;

use heddle_model::calendar::utc;
use heddle_model::printable;
use heddle_node::table::{self, count};

use super::{Detail, config, cost, duration, registered};
use crate::colour;
use crate::commands::root;
use crate::order::{ControlStatus, NodeStatus};

mod envoys;
#[cfg(test)]
mod tests;

/// Most nodes that are named in one line.
const NAMED: usize = 10;

pub(super) fn text(status: &ControlStatus, detail: Detail) -> String {
    let state = match (status.draining, status.ready) {
        (true, _) => colour::attention("stopping"),
        (false, true) => colour::good("ready"),
        (false, false) => colour::bad("not ready"),
    };
    let mut out = format!(
        "heddle {} control plane of {}, process {}, up {}, {state}\n",
        printable(&status.version),
        printable(&status.trust_domain),
        status.pid,
        duration(status.uptime_s)
    );
    let _infallible = writeln!(out, "{}", cost(&status.usage));
    let _infallible = writeln!(out, "nodes are served at {}", status.listen);
    if let Some(metrics) = status.metrics {
        let _infallible = writeln!(out, "metrics at http://{metrics}/metrics");
    }
    let _infallible = writeln!(
        out,
        "state in {}",
        printable(&status.state.display().to_string())
    );
    out.push_str(&config(
        &status.config,
        &status.folder.display().to_string(),
    ));
    if let Some(registry) = &status.registry {
        out.push_str(&registered(registry, detail));
    }
    let _infallible = writeln!(
        out,
        "nodes are told mesh generation {}, which counts nodes that come and go, too",
        status.mesh_generation
    );
    out.push_str(&root::text(&status.root));
    let here = status.nodes.iter().filter(|node| node.address.is_some());
    let _infallible = writeln!(
        out,
        "{} here, {} not used, {} on the deny-list",
        count(here.count(), "node"),
        count(status.tokens, "join token"),
        match status.denied {
            1 => "1 entry".to_owned(),
            entries => format!("{entries} entries"),
        }
    );
    if let Some(idle) = idle(status, detail) {
        let _infallible = writeln!(out, "{idle}");
    }
    out.push_str(&envoys::text(&status.envoys, &status.gateways, detail));
    if detail > Detail::Brief && !status.nodes.is_empty() {
        let _infallible = write!(out, "\n{}", nodes(status));
    }
    if detail > Detail::Brief && !status.envoys.is_empty() {
        let _infallible = write!(out, "\n{}", envoys::table(&status.envoys, &status.gateways));
    }
    out
}

fn nodes(status: &ControlStatus) -> String {
    let rows = status.nodes.iter().map(|node| {
        let NodeStatus {
            name,
            certificate_until,
            workloads,
            ..
        } = node;
        [
            name.clone(),
            place(node),
            workloads.to_string(),
            mesh(node, status.mesh_generation).to_owned(),
            roots(node, status.root.generation).to_owned(),
            certificate_until.map_or_else(|| "none".to_owned(), utc),
        ]
    });
    table::render(
        [
            "NODE",
            "ADDRESS",
            "WORKLOADS",
            "MESH",
            "ROOTS",
            "CERTIFICATE UNTIL",
        ],
        rows,
    )
}

/// Address of a node, or the reason why it has none. More than one address is a problem for the operator.
fn place(node: &NodeStatus) -> String {
    let Some(address) = node.address else {
        return away(node).to_owned();
    };
    let mut place = address.to_string();
    for also in &node.also_at {
        let _infallible = write!(place, " and {also}");
    }
    place
}

fn away(node: &NodeStatus) -> &'static str {
    match (node.denied, node.certificate_until) {
        (true, _) => "denied",
        (false, Some(_)) => "away",
        (false, None) => "has not joined",
    }
}

/// Whether it has its part of this generation of the mesh.
fn mesh(node: &NodeStatus, generation: u64) -> &'static str {
    match (node.address, node.mesh_generation) {
        (None, _) => "-",
        (Some(_), Some(has)) if has == generation => "newest",
        (Some(_), Some(_)) => "older",
        (Some(_), None) => "none yet",
    }
}

/// Whether it trusts the roots of this generation of the bundle.
fn roots(node: &NodeStatus, generation: u64) -> &'static str {
    match node.bundle {
        Some(0) | None => "not confirmed",
        Some(bundle) if bundle == generation => "confirmed",
        Some(_) => "older ones",
    }
}

/// Nodes that joined but have no workloads: their names may be mistyped.
fn idle(status: &ControlStatus, detail: Detail) -> Option<String> {
    let is_idle = |node: &&NodeStatus| {
        node.workloads == 0 && node.certificate_until.is_some() && !node.denied
    };
    let idle = status.nodes.iter().filter(is_idle);
    let mut names: Vec<&str> = idle.map(|node| node.name.as_str()).collect();
    let more = match names.len().saturating_sub(detail.most(NAMED)) {
        0 => String::new(),
        more => format!(" and {more} more"),
    };
    names.truncate(detail.most(NAMED));
    (!names.is_empty()).then(|| {
        let names = printable(&names.join(", ")).to_string();
        format!("no LocalWorkload is on {names}{more}: is that the name that its nodeName says?")
    })
}
