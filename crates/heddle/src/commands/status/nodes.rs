//! The other nodes, as `heddle status` shows them.

use heddle_node::status::{ConnectionsStatus, OtherStatus};
use heddle_node::table::{self, count};
use heddle_node::time::duration;

/// Table of the other nodes and their connections.
pub(super) fn table(all: &[OtherStatus]) -> String {
    let rows = all.iter().map(|other| {
        [
            other.node.clone().unwrap_or_else(|| "unknown".to_owned()),
            other.address.clone(),
            connections(&other.to),
            connections(&other.from),
            failure(other),
        ]
    });
    let head = [
        "OTHER NODE",
        "ADDRESS",
        "CALLED OVER",
        "CALLS OVER",
        "LAST FAILURE",
    ];
    table::render(head, rows)
}

/// Summary in one line.
pub(super) fn brief(all: &[OtherStatus]) -> String {
    let cut = |other: &&OtherStatus| other.to.links_cut + other.from.links_cut > 0;
    let mut out = count(all.len(), "other node");
    match all.iter().filter(cut).count() {
        0 => {}
        cut => out.push_str(&format!(", links cut with {cut}")),
    }
    out
}

fn connections(open: &ConnectionsStatus) -> String {
    let links =
        |number: usize, how: &str| (number > 0).then(|| format!("{}{how}", count(number, "link")));
    let cut = open
        .cut_for_s
        .map_or(String::new(), |s| format!(" cut for {}", duration(s)));
    let some = |number: usize, what: &str| (number > 0).then(|| count(number, what));
    let parts = [
        links(open.links_up, ""),
        links(open.links_connecting, " being made"),
        links(open.links_cut, &cut),
        some(open.http2_connections, "HTTP/2 connection"),
        some(open.http1_connections, "HTTP/1.1 connection"),
        some(open.streams, "stream"),
    ];
    let parts: Vec<String> = parts.into_iter().flatten().collect();
    match parts.is_empty() {
        true => "nothing".to_owned(),
        false => parts.join(", "),
    }
}

fn failure(other: &OtherStatus) -> String {
    match (&other.failure, other.failure_ago_s) {
        (Some(code), Some(s)) => format!("{code}, {} ago", duration(s)),
        (Some(code), None) => code.clone(),
        (None, _) => String::new(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_node_has_a_line() {
        let mut away = OtherStatus {
            node: Some("shop-2".to_owned()),
            address: "10.0.0.2:15008".to_owned(),
            failure: Some("link_lost".to_owned()),
            failure_ago_s: Some(4),
            ..OtherStatus::default()
        };
        away.to = ConnectionsStatus {
            links_up: 2,
            links_cut: 1,
            cut_for_s: Some(4),
            streams: 3,
            ..ConnectionsStatus::default()
        };
        let stranger = OtherStatus {
            address: "10.0.0.9".to_owned(),
            from: ConnectionsStatus {
                links_connecting: 1,
                http2_connections: 1,
                http1_connections: 2,
                ..ConnectionsStatus::default()
            },
            ..OtherStatus::default()
        };
        let all = [away, stranger];
        assert_eq!(
            table(&all),
            "OTHER NODE  ADDRESS         CALLED OVER                             CALLS OVER                                                      LAST FAILURE\n\
             shop-2      10.0.0.2:15008  2 links, 1 link cut for 4 s, 3 streams  nothing                                                         link_lost, 4 s ago\n\
             unknown     10.0.0.9        nothing                                 1 link being made, 1 HTTP/2 connection, 2 HTTP/1.1 connections\n"
        );
        assert_eq!(brief(&all), "2 other nodes, links cut with 1");
        assert_eq!(brief(&all[1..]), "1 other node");
    }
}
