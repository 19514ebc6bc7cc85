use super::{counter, counters, gauge, gauges, render};

#[test]
fn values_are_escaped_and_numbers_keep_their_digits() {
    let text = render(|encoder| {
        let hostile = [("x", "q\"b\\n\n}ü\r"), ("y", "")];
        counters(encoder, "a_total", "Hostile.", [(hostile, u64::MAX)])?;
        gauges(encoder, "b", "Level.", [([("x", "y")], -3_i64)])?;
        counters(encoder, "c_total", "None.", [([("x", "y")], 0_u64); 0])?;
        gauge(encoder, "d_seconds", "Time.", 1_791_000_000.25)?;
        counter(encoder, "e_seconds_total", "Little.", 0.000_001)
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
}
