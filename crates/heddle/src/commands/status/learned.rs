//! What a node has learned of the mesh, as `heddle status` shows it.

use heddle_node::status::{LearnedState, LearnedStatus};
use heddle_node::table::{self, count};
use heddle_node::time::duration;

/// Table of what the node has learned, what was used last first; at most `most` rows.
pub(super) fn table(all: &[LearnedStatus], most: usize) -> String {
    if all.is_empty() {
        return format!("{}\n", brief(all));
    }
    let mut newest: Vec<&LearnedStatus> = all.iter().collect();
    newest.sort_by_key(|one| one.unused_s);
    let rows = newest.iter().take(most).map(|one| {
        [
            one.name.clone(),
            state(one).to_owned(),
            cost(one),
            one.by
                .clone()
                .unwrap_or_else(|| "an earlier run".to_owned()),
            duration(one.for_s),
            duration(one.unused_s),
        ]
    });
    let head = [
        "LEARNED",
        "IS",
        "COST",
        "CALLED FIRST BY",
        "KNOWN FOR",
        "NOT USED FOR",
    ];
    let mut out = table::render(head, rows);
    if let Some(more) = all.len().checked_sub(most).filter(|more| *more > 0) {
        out.push_str(&format!("and {more} more (--output wide)\n"));
    }
    out
}

/// Summary in one line.
pub(super) fn brief(all: &[LearnedStatus]) -> String {
    let in_state = |state| all.iter().filter(|one| one.state == state).count();
    let mut out = format!("{} learned of the mesh", count(all.len(), "destination"));
    for (number, what) in [
        (in_state(LearnedState::Asked), "not answered yet"),
        (in_state(LearnedState::Unreadable), "unreadable"),
    ] {
        if number > 0 {
            out.push_str(&format!(", {number} {what}"));
        }
    }
    out
}

fn state(one: &LearnedStatus) -> &'static str {
    match one.state {
        LearnedState::Asked => "asked",
        LearnedState::There => "there",
        LearnedState::Absent => "not in the mesh",
        LearnedState::Unreadable => "unreadable",
    }
}

fn cost(one: &LearnedStatus) -> String {
    match one.services {
        0 => "nothing".to_owned(),
        services => {
            let endpoints = count(one.endpoints, "endpoint");
            format!("{}, {endpoints}", count(services, "service"))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_used_last_comes_first() {
        let one = |name: &str, state, services, unused_s| LearnedStatus {
            name: name.to_owned(),
            state,
            by: (services > 0).then(|| "shop/web".to_owned()),
            for_s: 90,
            unused_s,
            services,
            endpoints: services * 3,
        };
        let all = [
            one("10.9.9.9", LearnedState::Absent, 0, 60),
            one("10.96.0.1", LearnedState::There, 1, 5),
            one("shop/cart", LearnedState::There, 1, 0),
            one("shop/new", LearnedState::Asked, 0, 70),
        ];
        assert_eq!(
            table(&all, 3),
            "LEARNED    IS               COST                    CALLED FIRST BY  KNOWN FOR   NOT USED FOR\n\
             shop/cart  there            1 service, 3 endpoints  shop/web         1 min 30 s  0 s\n\
             10.96.0.1  there            1 service, 3 endpoints  shop/web         1 min 30 s  5 s\n\
             10.9.9.9   not in the mesh  nothing                 an earlier run   1 min 30 s  1 min 0 s\n\
             and 1 more (--output wide)\n"
        );
        assert_eq!(
            brief(&all),
            "4 destinations learned of the mesh, 1 not answered yet"
        );
    }
}
