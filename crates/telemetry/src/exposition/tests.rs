use super::{counter, counters, gauge, gauges, render};

#[expect(unreachable_pub, reason = "the families are of this test alone")]
mod of_a_test {
    crate::families::families! {
        A = Counter "a_total" [x y] "Hostile.";
        B = Gauge "b" [x] "Level.";
        C = Counter "c_total" [x] "None.";
        D = Gauge "d_seconds" [] "Time.";
        E = Counter "e_seconds_total" [] "Little.";
    }
}
use of_a_test::{A, B, C, D, E};

#[test]
fn values_are_escaped_and_numbers_keep_their_digits() {
    let text = render(|encoder| {
        let hostile = [("x", "q\"b\\n\n}ü\r"), ("y", "")];
        counters(encoder, &A, [(hostile, u64::MAX)])?;
        gauges(encoder, &B, [([("x", "y")], -3_i64)])?;
        counters(encoder, &C, [([("x", "y")], 0_u64); 0])?;
        gauge(encoder, &D, 1_791_000_000.25)?;
        counter(encoder, &E, 0.000_001)
    });
    let expected = concat!(
        "# HELP a Hostile.\n# TYPE a counter\n",
        "a_total{x=\"q\\\"b\\\\n\\n}ü\r\",y=\"\"} 18446744073709551615\n",
        "# HELP b Level.\n# TYPE b gauge\nb{x=\"y\"} -3\n",
        "# HELP c None.\n# TYPE c counter\n",
        "# HELP d_seconds Time.\n# TYPE d_seconds gauge\nd_seconds 1791000000.25\n",
        "# HELP e_seconds Little.\n# TYPE e_seconds counter\ne_seconds_total 0.000001\n",
        "# EOF\n",
    );
    assert_eq!(text, expected);
    assert_eq!(of_a_test::ALL.len(), 5);
}
