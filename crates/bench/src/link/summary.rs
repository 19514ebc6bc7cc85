//! From figures to what is said of them: tables, ratios, and the bars that they are held against.

use super::plan::{CHANGING, CONSTANT, RequestKind};
use super::rounds::quiet_cell;
use super::way::{Way, name_of_other};
use crate::findings::Findings;
use crate::sheet::Sheet;

/// What a ratio should be.
#[derive(Debug, Clone, Copy, PartialEq)]
enum Bar {
    AtMost(f64),
    AtLeast(f64),
    /// It is only told.
    None,
}

/// A ratio: its name, the figure, whose in whose, of which requests, and its bar.
type Ratio = (&'static str, &'static str, [Way; 2], RequestKind, Bar);

const RATIOS: [Ratio; 16] = {
    use Bar::{AtLeast, AtMost, None};
    use Way::{Envoy, Http1Mtls, Http2Mtls, LinkMtls};
    const OVERHEAD: &str = "overhead_bytes";
    [
        (
            "bytes_vs_http1",
            "bytes",
            [LinkMtls, Http1Mtls],
            CONSTANT,
            AtMost(0.35),
        ),
        (
            "bytes_vs_http1_changing",
            "bytes",
            [LinkMtls, Http1Mtls],
            CHANGING,
            AtMost(0.5),
        ),
        (
            "overhead_bytes_vs_http2",
            OVERHEAD,
            [LinkMtls, Http2Mtls],
            CHANGING,
            AtMost(0.8),
        ),
        (
            "overhead_bytes_vs_http2_constant",
            OVERHEAD,
            [LinkMtls, Http2Mtls],
            CONSTANT,
            AtMost(0.55),
        ),
        (
            "overhead_bytes_vs_envoy_http2",
            OVERHEAD,
            [LinkMtls, Envoy],
            CHANGING,
            None,
        ),
        (
            "overhead_bytes_vs_envoy_http2_constant",
            OVERHEAD,
            [LinkMtls, Envoy],
            CONSTANT,
            None,
        ),
        (
            "qps_vs_http1_mtls",
            "qps",
            [LinkMtls, Http1Mtls],
            CHANGING,
            AtLeast(1.15),
        ),
        (
            "qps_vs_http1_mtls_constant",
            "qps",
            [LinkMtls, Http1Mtls],
            CONSTANT,
            None,
        ),
        (
            "qps_vs_http2_mtls",
            "qps",
            [LinkMtls, Http2Mtls],
            CHANGING,
            AtLeast(1.25),
        ),
        (
            "qps_vs_http2_mtls_constant",
            "qps",
            [LinkMtls, Http2Mtls],
            CONSTANT,
            None,
        ),
        (
            "cpu_link_vs_envoy",
            "cpu_us",
            [LinkMtls, Envoy],
            CHANGING,
            AtMost(0.385),
        ),
        // Both use all of the CPU that they are given: who needs less for a request carries more.
        (
            "cpu_link_vs_envoy_saturated",
            "qps",
            [Envoy, LinkMtls],
            CHANGING,
            AtMost(0.385),
        ),
        (
            "cpu_link_vs_http1",
            "cpu_us",
            [LinkMtls, Http1Mtls],
            CHANGING,
            None,
        ),
        (
            "cpu_http1_vs_envoy",
            "cpu_us",
            [Http1Mtls, Envoy],
            CHANGING,
            None,
        ),
        (
            "p99_link_vs_http1",
            "p99_us",
            [LinkMtls, Http1Mtls],
            CHANGING,
            None,
        ),
        (
            "p99_link_vs_envoy",
            "p99_us",
            [LinkMtls, Envoy],
            CHANGING,
            None,
        ),
    ]
};

/// Medians by name: of which way, which requests.
const VALUES: [(&str, &str, Way, RequestKind); 8] = [
    ("http1_mtls_bytes", "bytes", Way::Http1Mtls, CONSTANT),
    ("link_mtls_bytes", "bytes", Way::LinkMtls, CONSTANT),
    ("link_mtls_bytes_changing", "bytes", Way::LinkMtls, CHANGING),
    ("envoy_http2_bytes", "bytes", Way::Envoy, CONSTANT),
    ("http1_mtls_cpu_us", "cpu_us", Way::Http1Mtls, CHANGING),
    ("link_mtls_cpu_us", "cpu_us", Way::LinkMtls, CHANGING),
    ("http2_mtls_cpu_us", "cpu_us", Way::Http2Mtls, CHANGING),
    ("envoy_cpu_us", "cpu_us", Way::Envoy, CHANGING),
];

/// Says what was found.
pub(super) fn tell(sheet: &Sheet, findings: &mut Findings) {
    findings.say("\nBytes of an exchange between the proxies, request and response together");
    findings.say(sheet.table(&[
        ("below TLS", "bytes", 1),
        ("less bodies", "overhead_bytes", 1),
        ("on the socket", "socket_bytes", 1),
        ("TCP segments", "segments", 2),
    ]));
    findings.say("The same offered rate for all, and pairs that say little");
    findings.say(sheet.table(&[
        ("requests/s", "offered_per_s", 0),
        ("CPU µs/request, both", "cpu_us", 1),
        ("p50 µs", "p50_us", 0),
        ("p99 µs", "p99_us", 0),
    ]));
    findings.say("As fast as it goes, both proxies held to half a core");
    findings.say(sheet.table(&[("requests/s", "qps", 0)]));
    sheet.tell_problems(findings);
    for (name, figure, [ours, theirs], kind, bar) in RATIOS {
        let ratio = sheet.ratio(figure, (ours.name(), theirs.name()), &kind.to_string());
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
    }
    for (name, figure, way, kind) in VALUES {
        findings.value(name, sheet.spread(figure, way.name(), &kind.to_string()));
    }
    let quiet = |way: Way| sheet.spread("cpu_us", way.name(), &quiet_cell(CHANGING));
    findings.value("http1_mtls_quiet_cpu_us", quiet(Way::Http1Mtls));
    findings.value("link_mtls_quiet_cpu_us", quiet(Way::LinkMtls));
    findings.rows.extend(sheet.rows());
}

/// Says what links cost beside those of another Heddle.
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

impl Bar {
    fn said(self) -> Option<String> {
        match self {
            Bar::AtMost(most) => Some(format!("at most {most}")),
            Bar::AtLeast(least) => Some(format!("at least {least}")),
            Bar::None => None,
        }
    }

    fn is_reached(self, found: f64) -> bool {
        match self {
            Bar::AtMost(most) => found <= most,
            Bar::AtLeast(least) => found >= least,
            Bar::None => true,
        }
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

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
    fn a_bar_is_reached_from_its_own_side() {
        assert!(Bar::AtMost(0.5).is_reached(0.5) && !Bar::AtMost(0.5).is_reached(0.51));
        assert!(Bar::AtLeast(1.1).is_reached(1.1) && !Bar::AtLeast(1.1).is_reached(1.09));
        assert_eq!(Bar::AtMost(0.35).said().as_deref(), Some("at most 0.35"));
        assert!(Bar::None.is_reached(9.0) && Bar::None.said().is_none());
    }
}
