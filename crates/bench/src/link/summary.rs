//! From figures to the report: tables, ratios, and the thresholds that ratios are compared with.

use super::plan::{CHANGING, CONSTANT, RequestKind};
use super::rounds::quiet_cell;
use super::way::{Way, name_of_other};
use crate::findings::Findings;
use crate::sheet::Sheet;
use crate::statistics::Spread;

/// The threshold of a ratio.
#[derive(Debug, Clone, Copy, PartialEq)]
enum Threshold {
    AtMost(f64),
    AtLeast(f64),
    /// The ratio is only reported.
    None,
}

/// The ways on one side of a ratio; each of them is compared.
type Ways = &'static [Way];

/// A ratio: its name, the figure, the ways of the dividend and of the divisor, the kind of requests on a busy pair, and
/// its threshold. Less is better in each ratio that has several ways on a side: the way counts with which it is
/// largest.
type Ratio = (
    &'static str,
    &'static str,
    [Ways; 2],
    RequestKind,
    Threshold,
);

const LINK: Ways = &[Way::LinkMtls];
const HTTP1: Ways = &[Way::Http1Mtls];
const HTTP2: Ways = &[Way::Http2Mtls];
/// Heddle is compared with the better of them.
const ENVOYS: Ways = &[Way::EnvoyHttp1, Way::EnvoyHttp2];

const RATIOS: [Ratio; 18] = {
    use Threshold::{AtLeast, AtMost, None};
    const OVERHEAD: &str = "overhead_bytes";
    [
        (
            "bytes_vs_http1",
            "bytes",
            [LINK, HTTP1],
            CONSTANT,
            AtMost(0.35),
        ),
        (
            "bytes_vs_http1_changing",
            "bytes",
            [LINK, HTTP1],
            CHANGING,
            AtMost(0.5),
        ),
        // The kernel's own count, beside the counters of the programs.
        (
            "socket_bytes_vs_http1",
            "socket_bytes",
            [LINK, HTTP1],
            CONSTANT,
            None,
        ),
        (
            "socket_bytes_vs_http1_changing",
            "socket_bytes",
            [LINK, HTTP1],
            CHANGING,
            None,
        ),
        (
            "overhead_bytes_vs_http2",
            OVERHEAD,
            [LINK, HTTP2],
            CHANGING,
            AtMost(0.8),
        ),
        (
            "overhead_bytes_vs_http2_constant",
            OVERHEAD,
            [LINK, HTTP2],
            CONSTANT,
            AtMost(0.55),
        ),
        (
            "overhead_bytes_vs_envoy_http2",
            OVERHEAD,
            [LINK, &[Way::EnvoyHttp2]],
            CHANGING,
            None,
        ),
        (
            "overhead_bytes_vs_envoy_http2_constant",
            OVERHEAD,
            [LINK, &[Way::EnvoyHttp2]],
            CONSTANT,
            None,
        ),
        (
            "qps_vs_http1_mtls",
            "qps",
            [LINK, HTTP1],
            CHANGING,
            AtLeast(1.15),
        ),
        (
            "qps_vs_http1_mtls_constant",
            "qps",
            [LINK, HTTP1],
            CONSTANT,
            None,
        ),
        (
            "qps_vs_http2_mtls",
            "qps",
            [LINK, HTTP2],
            CHANGING,
            AtLeast(1.25),
        ),
        (
            "qps_vs_http2_mtls_constant",
            "qps",
            [LINK, HTTP2],
            CONSTANT,
            None,
        ),
        (
            "cpu_link_vs_envoy",
            "cpu_us",
            [LINK, ENVOYS],
            CHANGING,
            AtMost(0.385),
        ),
        // Both use all of the CPU that they are given: the one that needs less for a request carries more.
        (
            "cpu_link_vs_envoy_saturated",
            "qps",
            [ENVOYS, LINK],
            CHANGING,
            AtMost(0.385),
        ),
        ("cpu_link_vs_http1", "cpu_us", [LINK, HTTP1], CHANGING, None),
        (
            "cpu_http1_vs_envoy",
            "cpu_us",
            [HTTP1, ENVOYS],
            CHANGING,
            None,
        ),
        ("p99_link_vs_http1", "p99_us", [LINK, HTTP1], CHANGING, None),
        (
            "p99_link_vs_envoy",
            "p99_us",
            [LINK, ENVOYS],
            CHANGING,
            None,
        ),
    ]
};

/// Medians by name, each of a figure, a way and a kind of request.
const VALUES: [(&str, &str, Way, RequestKind); 9] = [
    ("http1_mtls_bytes", "bytes", Way::Http1Mtls, CONSTANT),
    ("link_mtls_bytes", "bytes", Way::LinkMtls, CONSTANT),
    ("link_mtls_bytes_changing", "bytes", Way::LinkMtls, CHANGING),
    ("envoy_http2_bytes", "bytes", Way::EnvoyHttp2, CONSTANT),
    ("http1_mtls_cpu_us", "cpu_us", Way::Http1Mtls, CHANGING),
    ("link_mtls_cpu_us", "cpu_us", Way::LinkMtls, CHANGING),
    ("http2_mtls_cpu_us", "cpu_us", Way::Http2Mtls, CHANGING),
    ("envoy_http1_cpu_us", "cpu_us", Way::EnvoyHttp1, CHANGING),
    ("envoy_http2_cpu_us", "cpu_us", Way::EnvoyHttp2, CHANGING),
];

/// Reports the results.
pub(super) fn tell(sheet: &Sheet, findings: &mut Findings) {
    findings.say("\nBytes of an exchange between the proxies, request and response together");
    findings.say(sheet.table(&[
        ("below TLS", "bytes", 1),
        ("less bodies", "overhead_bytes", 1),
        ("on the socket", "socket_bytes", 1),
        ("TCP segments", "segments", 2),
    ]));
    findings.say("The same offered rate for all, and pairs with little traffic");
    findings.say(sheet.table(&[
        ("requests/s", "offered_per_s", 0),
        ("CPU µs/request, both", "cpu_us", 1),
        ("% of their core", "core_percent", 0),
        ("p50 µs", "p50_us", 0),
        ("p99 µs", "p99_us", 0),
    ]));
    findings.say("As fast as it goes, both proxies held to half a core");
    findings.say(sheet.table(&[("requests/s", "qps", 0)]));
    sheet.tell_problems(findings);
    for (name, figure, sides, kind, bar) in RATIOS {
        tell_ratio(
            sheet,
            (name, figure, sides),
            &kind.to_string(),
            bar,
            findings,
        );
    }
    let quiet = quiet_cell(CHANGING);
    let ratio = ("cpu_link_vs_envoy_quiet", "cpu_us", [LINK, ENVOYS]);
    tell_ratio(sheet, ratio, &quiet, Threshold::None, findings);
    for (name, figure, way, kind) in VALUES {
        findings.value(name, sheet.spread(figure, way.name(), &kind.to_string()));
    }
    let envoys = ENVOYS.iter();
    let envoys = envoys.filter_map(|way| sheet.spread("cpu_us", way.name(), &CHANGING.to_string()));
    let better = envoys.min_by(|one, other| one.median.total_cmp(&other.median));
    findings.value("envoy_cpu_us", better);
    for (name, way) in [
        ("http1_mtls_quiet_cpu_us", Way::Http1Mtls),
        ("link_mtls_quiet_cpu_us", Way::LinkMtls),
        ("envoy_http1_quiet_cpu_us", Way::EnvoyHttp1),
        ("envoy_http2_quiet_cpu_us", Way::EnvoyHttp2),
    ] {
        findings.value(name, sheet.spread("cpu_us", way.name(), &quiet));
    }
    findings.rows.extend(sheet.rows());
}

/// Reports one ratio for a cell, and the ratio with each pair of Envoys where it is with both.
fn tell_ratio(
    sheet: &Sheet,
    (name, figure, [ours, theirs]): (&str, &'static str, [Ways; 2]),
    cell: &str,
    bar: Threshold,
    findings: &mut Findings,
) {
    let each = quotients(sheet, figure, [ours, theirs], cell);
    let ratio = largest(each.iter().map(|(_, ratio)| ratio)).cloned();
    let median = ratio.as_ref().map(|ratio| ratio.median);
    if let (Some(found), Some(said)) = (median, bar.said()) {
        let verdict = if bar.is_reached(found) {
            "reached"
        } else {
            "MISSED"
        };
        findings.say(format!("{name:34} {found:5.2}, to be {said}: {verdict}"));
    }
    findings.ratio(name, ratio);
    if ours.len().max(theirs.len()) > 1 {
        for (envoy, ratio) in each {
            let between = envoy.name().replacen("envoy-", "", 1);
            findings.ratio(format!("{name}_{between}"), Some(ratio));
        }
    }
}

/// The ratios of each of our ways to each of theirs, as far as they were measured, each with the way that varies.
fn quotients(
    sheet: &Sheet,
    figure: &'static str,
    [ours, theirs]: [Ways; 2],
    cell: &str,
) -> Vec<(Way, Spread)> {
    let pairs = ours
        .iter()
        .flat_map(|one| theirs.iter().map(move |other| (*one, *other)));
    let quotient = |(one, other): (Way, Way)| {
        let ratio = sheet.ratio(figure, (one.name(), other.name()), cell)?;
        let differs = if ours.len() > 1 { one } else { other };
        Some((differs, ratio))
    };
    pairs.filter_map(quotient).collect()
}

/// The ratio that is least favourable to our side, where less is better.
fn largest<'s>(ratios: impl Iterator<Item = &'s Spread>) -> Option<&'s Spread> {
    ratios.max_by(|one, other| one.median.total_cmp(&other.median))
}

/// Reports the cost of links compared with those of another Heddle.
pub(super) fn tell_other(sheet: &Sheet, name: &str, findings: &mut Findings) {
    let other = name_of_other(name);
    for (kind, requests) in [(CONSTANT, "_constant"), (CHANGING, "")] {
        let cell = kind.to_string();
        for (what, figure) in [
            ("bytes", "bytes"),
            ("cpu", "cpu_us"),
            ("qps", "qps"),
            ("p99", "p99_us"),
        ] {
            let ratio = sheet.ratio(figure, (Way::LinkMtls.name(), &other), &cell);
            findings.ratio(format!("{what}_link_vs_{name}{requests}"), ratio);
        }
    }
}

impl Threshold {
    fn said(self) -> Option<String> {
        match self {
            Threshold::AtMost(most) => Some(format!("at most {most}")),
            Threshold::AtLeast(least) => Some(format!("at least {least}")),
            Threshold::None => None,
        }
    }

    fn is_reached(self, found: f64) -> bool {
        match self {
            Threshold::AtMost(most) => found <= most,
            Threshold::AtLeast(least) => found >= least,
            Threshold::None => true,
        }
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;
    use crate::machine::Machine;

    #[test]
    fn ratios_have_names_of_their_own_and_are_of_two_ways() {
        let names: BTreeSet<&str> = RATIOS.iter().map(|ratio| ratio.0).collect();
        assert_eq!(names.len(), RATIOS.len());
        assert!(
            RATIOS
                .iter()
                .all(|(_, _, [ours, theirs], ..)| ours != theirs)
        );
        let names: BTreeSet<&str> = VALUES.iter().map(|value| value.0).collect();
        assert_eq!(names.len(), VALUES.len());
    }

    #[test]
    fn of_two_pairs_of_envoys_the_better_one_counts_and_both_are_known() {
        let mut sheet = Sheet::default();
        let cell = CHANGING.to_string();
        for (way, cpu_us, qps) in [
            (Way::LinkMtls, 40.0, 10_000.0),
            (Way::EnvoyHttp1, 100.0, 5_000.0),
            (Way::EnvoyHttp2, 160.0, 4_000.0),
        ] {
            sheet.add("cpu_us", way.name(), &cell, 0, cpu_us);
            sheet.add("qps", way.name(), &cell, 0, qps);
        }
        let found = |figure, sides| {
            let each = quotients(&sheet, figure, sides, &cell);
            let names: Vec<&str> = each.iter().map(|(way, _)| way.name()).collect();
            assert_eq!(names, ["envoy-http1", "envoy-http2"]);
            largest(each.iter().map(|(_, ratio)| ratio)).map(|ratio| ratio.median)
        };
        assert_eq!(found("cpu_us", [LINK, ENVOYS]), Some(0.4));
        assert_eq!(found("qps", [ENVOYS, LINK]), Some(0.5));
    }

    #[test]
    fn pairs_that_say_little_and_the_sockets_are_held_against_peers_too() {
        let mut sheet = Sheet::default();
        let quiet = quiet_cell(CHANGING);
        for (way, cpu_us) in [
            (Way::LinkMtls, 100.0),
            (Way::EnvoyHttp1, 400.0),
            (Way::EnvoyHttp2, 200.0),
        ] {
            sheet.add("cpu_us", way.name(), &quiet, 0, cpu_us);
        }
        let constant = CONSTANT.to_string();
        sheet.add("socket_bytes", Way::LinkMtls.name(), &constant, 0, 500.0);
        sheet.add("socket_bytes", Way::Http1Mtls.name(), &constant, 0, 2_000.0);
        let mut findings = Findings::new("test", false, Machine::default());
        tell(&sheet, &mut findings);
        let told = serde_json::to_value(&findings).expect("findings");
        assert_eq!(
            told["ratios"],
            serde_json::json!({
                "cpu_link_vs_envoy_quiet": 0.5,
                "cpu_link_vs_envoy_quiet_http1": 0.25,
                "cpu_link_vs_envoy_quiet_http2": 0.5,
                "socket_bytes_vs_http1": 0.25,
            })
        );
        assert_eq!(told["values"]["envoy_http2_quiet_cpu_us"], 200.0);
    }

    #[test]
    fn a_bar_is_reached_from_its_own_side() {
        assert!(Threshold::AtMost(0.5).is_reached(0.5) && !Threshold::AtMost(0.5).is_reached(0.51));
        assert!(
            Threshold::AtLeast(1.1).is_reached(1.1) && !Threshold::AtLeast(1.1).is_reached(1.09)
        );
        assert_eq!(
            Threshold::AtMost(0.35).said().as_deref(),
            Some("at most 0.35")
        );
        assert!(Threshold::None.is_reached(9.0) && Threshold::None.said().is_none());
    }
}
