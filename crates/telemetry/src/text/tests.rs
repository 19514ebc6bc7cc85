use super::{Encoder, Kind};

#[test]
fn values_and_help_are_escaped() {
    let mut out = String::new();
    let mut encoder = Encoder::new(&mut out);
    encoder.family("a_total", Kind::Counter, "One \\ two\nthree \"four\".");
    encoder.count("a_total", &[("x", "q\"b\\n\nü"), ("y", "")], u64::MAX);
    encoder.family("b", Kind::Gauge, "Level.");
    encoder.level("b", &[], -3);
    encoder.family("c_seconds", Kind::Gauge, "Time.");
    encoder.seconds("c_seconds", &[], 1_500_000);
    encoder.seconds("c_seconds", &[("x", "y")], 1);
    let expected = concat!(
        "# HELP a_total One \\\\ two\\nthree \"four\".\n",
        "# TYPE a_total counter\n",
        "a_total{x=\"q\\\"b\\\\n\\nü\",y=\"\"} 18446744073709551615\n",
        "# HELP b Level.\n# TYPE b gauge\nb -3\n",
        "# HELP c_seconds Time.\n# TYPE c_seconds gauge\n",
        "c_seconds 1.5\nc_seconds{x=\"y\"} 0.000001\n",
    );
    assert_eq!(out, expected);
}
