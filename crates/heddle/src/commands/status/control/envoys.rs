//! Text form of what a control plane's status says of Envoys.

use std::fmt::Write;

use heddle_model::calendar::utc;
use heddle_model::printable;
use heddle_node::table::{self, count};

use super::super::{Detail, duration};
use super::NAMED;
use crate::colour;
use crate::order::{EnvoyStatus, GatewayStatus};

#[cfg(test)]
mod tests;

/// How many Envoys and gateways are connected, and which gateways are not. Nothing where there are no Envoys.
pub(super) fn text(envoys: &[EnvoyStatus], gateways: &[GatewayStatus], detail: Detail) -> String {
    let mut out = String::new();
    if envoys.is_empty() {
        return out;
    }
    let here = envoys.iter().filter(|envoy| envoy.connected_s.is_some());
    let here = here.count();
    let _infallible = write!(
        out,
        "{} of {} connected",
        here,
        count(envoys.len(), "Envoy")
    );
    let here = gateways.iter().filter(|gateway| gateway.connected).count();
    let is_any_lazy = envoys.iter().any(|envoy| envoy.lazy);
    match (gateways.len(), here) {
        (0, _) => out.push('\n'),
        (known, 0) if is_any_lazy => {
            let known = count(known, "gateway");
            let why = format!("none of {known}: lazy Envoys reach only what they know");
            let _infallible = writeln!(out, ", {}", colour::bad(why));
        }
        (known, here) => {
            let _infallible = writeln!(out, ", {here} of {}", count(known, "gateway"));
        }
    }
    let away = gateways.iter().filter(|gateway| !gateway.connected);
    let mut away: Vec<String> = away.map(gateway).collect();
    let more = match away.len().saturating_sub(detail.most(NAMED)) {
        0 => String::new(),
        more => format!(" and {more} more"),
    };
    away.truncate(detail.most(NAMED));
    if !away.is_empty() {
        let names = away.join(", ");
        let _infallible = writeln!(out, "not connected as a gateway: {names}{more}");
    }
    out
}

fn gateway(gateway: &GatewayStatus) -> String {
    let workload = printable(&gateway.workload);
    match &gateway.node {
        Some(node) => format!("node {} by {workload}", printable(node)),
        None => format!("the Envoy of {workload}"),
    }
}

/// A line for each Envoy.
pub(super) fn table(envoys: &[EnvoyStatus], gateways: &[GatewayStatus]) -> String {
    let rows = envoys.iter().map(|envoy| {
        let EnvoyStatus {
            workload,
            connected_s,
            certificate_until,
            lazy,
        } = envoy;
        let is_gateway = gateways.iter().any(|gateway| gateway.workload == *workload);
        let knows = match (is_gateway, lazy) {
            (true, _) => "all, as a gateway",
            (false, true) => "what it uses",
            (false, false) => "all",
        };
        [
            workload.clone(),
            connected_s.map_or_else(
                || "away".to_owned(),
                |for_s| format!("for {}", duration(for_s)),
            ),
            knows.to_owned(),
            certificate_until.map_or_else(String::new, utc),
        ]
    });
    table::render(
        ["ENVOY OF", "CONNECTED", "KNOWS", "CERTIFICATE UNTIL"],
        rows,
    )
}
