//! Amounts of Kubernetes, such as `500m` and `128Mi` (k8s.io/apimachinery/pkg/api/resource): one amount may be written in
//! several ways.

/// Longest text that is read.
const MAX_LEN: usize = 48;
/// 10 to the power of 9: amounts are compared in billionths, which is the smallest unit there is.
const BILLION: i128 = 1_000_000_000;

/// Whether two texts say the same amount. Texts that are no amounts are compared as they are.
pub(super) fn is_same(a: &str, b: &str) -> bool {
    match (billionths(a), billionths(b)) {
        (Some(a), Some(b)) => a == b,
        _ => a == b,
    }
}

/// The amount in billionths.
fn billionths(text: &str) -> Option<i128> {
    if text.len() > MAX_LEN {
        return None;
    }
    let (sign, text) = match text.strip_prefix('-') {
        Some(rest) => (-1, rest),
        None => (1, text.strip_prefix('+').unwrap_or(text)),
    };
    let is_number = |c: char| c.is_ascii_digit() || c == '.';
    let (number, suffix) = text.split_at(text.find(|c| !is_number(c)).unwrap_or(text.len()));
    let (whole, fraction) = number.split_once('.').unwrap_or((number, ""));
    if fraction.contains('.') || (whole.is_empty() && fraction.is_empty()) {
        return None;
    }
    let digits: i128 = format!("{whole}{fraction}").parse().ok()?;
    let scale = 10i128.checked_pow(u32::try_from(fraction.len()).ok()?)?;
    let amount = digits.checked_mul(unit(suffix)?)?;
    // Less than a billionth is rounded up, as the API server does.
    let rounded = amount / scale + i128::from(amount % scale != 0);
    rounded.checked_mul(sign)
}

/// A unit in billionths.
fn unit(suffix: &str) -> Option<i128> {
    let decimal = ["n", "u", "m", "", "k", "M", "G", "T", "P", "E"];
    let binary = ["Ki", "Mi", "Gi", "Ti", "Pi", "Ei"];
    if let Some(at) = decimal.iter().position(|one| *one == suffix) {
        return 1_000i128.checked_pow(u32::try_from(at).ok()?);
    }
    if let Some(at) = binary.iter().position(|one| *one == suffix) {
        let unit = 1_024i128.checked_pow(u32::try_from(at + 1).ok()?)?;
        return unit.checked_mul(BILLION);
    }
    let exponent: i32 = suffix.strip_prefix(['e', 'E'])?.parse().ok()?;
    10i128.checked_pow(u32::try_from(exponent.checked_add(9)?).ok()?)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::{billionths, is_same};

    #[test]
    fn one_amount_has_several_texts() {
        for (a, b) in [
            ("500m", "0.5"),
            ("1", "1000m"),
            ("128Mi", "134217728"),
            ("1.5Gi", "1536Mi"),
            ("1e3", "1k"),
            ("12E", "12e18"),
            ("+1", "1"),
            (".5", "500000u"),
            ("-1n", "-1n"),
        ] {
            assert!(is_same(a, b), "{a} {b}");
        }
        for (a, b) in [
            ("500m", "500"),
            ("1Mi", "1M"),
            ("x", "y"),
            ("1", ""),
            ("-1", "1"),
        ] {
            assert!(!is_same(a, b), "{a} {b}");
        }
        for wrong in [
            "",
            ".",
            "1.2.3",
            "1x",
            "1ee3",
            "1e-10",
            "e3",
            "99999999999999999999999999E",
        ] {
            assert_eq!(billionths(wrong), None, "{wrong}");
        }
    }

    proptest! {
        #[test]
        fn any_text_is_the_same_as_itself(text in "\\PC{0,60}|[0-9.]{0,20}[a-zA-Z0-9]{0,3}") {
            prop_assert!(is_same(&text, &text));
        }

        #[test]
        fn thousandths_are_read(number in 0u32..) {
            let whole = format!("{}.{:03}", number / 1_000, number % 1_000);
            let thousandths = format!("{number}m");
            prop_assert!(is_same(&thousandths, &whole));
        }
    }
}
