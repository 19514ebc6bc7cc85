//! How long the experiment runs, and its kinds of requests.

use std::fmt;

use crate::load::Head;

/// A kind of request: its head, the size of the body in each direction, and whether the head changes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct RequestKind {
    pub(super) head: Head,
    pub(super) body_bytes: u64,
    pub(super) changing: bool,
}

/// The kinds that the thresholds are for: with constant heads, and with heads that change.
pub(super) const CONSTANT: RequestKind = kind(Head::Browser, 128, false);
pub(super) const CHANGING: RequestKind = kind(Head::Browser, 128, true);

const fn kind(head: Head, body_bytes: u64, changing: bool) -> RequestKind {
    RequestKind {
        head,
        body_bytes,
        changing,
    }
}

impl fmt::Display for RequestKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let head = match self.head {
            Head::Plain => "plain",
            Head::Browser => "browser",
            Head::Grpc => "gRPC",
        };
        let changing = if self.changing {
            "changing"
        } else {
            "constant"
        };
        match self.body_bytes {
            bytes if bytes >= 1 << 10 => write!(f, "{head} {} KiB {changing}", bytes >> 10),
            bytes => write!(f, "{head} {bytes} B {changing}"),
        }
    }
}

/// The measurements, and how long they take. Times are in seconds.
pub(super) struct LinkPlan {
    pub(super) rounds: usize,
    /// The two kinds that the thresholds are for come first.
    pub(super) kinds: Vec<RequestKind>,
    pub(super) warm_up_s: f64,
    pub(super) calibration_s: f64,
    pub(super) window_s: f64,
    /// The window of pairs with little traffic.
    pub(super) quiet_s: f64,
    /// Requests over which bytes are counted, on a busy pair.
    pub(super) counted: u64,
    /// Rounds in which bytes are counted: they hardly vary.
    pub(super) count_rounds: usize,
}

impl LinkPlan {
    /// About half an hour with all six ways.
    pub(super) fn full() -> LinkPlan {
        let browser =
            [128, 0, 4096].map(|bytes| [false, true].map(|c| kind(Head::Browser, bytes, c)));
        let grpc = [false, true].map(|changing| kind(Head::Grpc, 128, changing));
        LinkPlan {
            rounds: 5,
            kinds: browser.into_iter().flatten().chain(grpc).collect(),
            warm_up_s: 0.4,
            calibration_s: 1.0,
            window_s: 2.0,
            quiet_s: 4.0,
            counted: 20_000,
            count_rounds: 2,
        }
    }

    /// A few minutes.
    pub(super) fn quick() -> LinkPlan {
        LinkPlan {
            rounds: 2,
            kinds: vec![
                CONSTANT,
                CHANGING,
                kind(Head::Browser, 4096, true),
                kind(Head::Grpc, 128, true),
            ],
            warm_up_s: 0.3,
            calibration_s: 0.6,
            window_s: 1.0,
            quiet_s: 2.0,
            counted: 4_000,
            count_rounds: 1,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn plans_begin_with_what_the_bars_are_about() {
        for (plan, kinds) in [(LinkPlan::quick(), 4), (LinkPlan::full(), 8)] {
            assert_eq!(plan.kinds[..2], [CONSTANT, CHANGING]);
            assert_eq!(plan.kinds.len(), kinds);
            assert!(plan.count_rounds <= plan.rounds);
        }
        assert_eq!(CHANGING.to_string(), "browser 128 B changing");
        assert_eq!(
            kind(Head::Grpc, 4096, false).to_string(),
            "gRPC 4 KiB constant"
        );
    }
}
