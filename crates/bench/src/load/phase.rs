//! Phases of a load whose rate changes.

/// A time at one rate, or at full speed.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct LoadPhase {
    pub(super) seconds: f64,
    pub(super) rate: Option<f64>,
}

impl std::str::FromStr for LoadPhase {
    type Err = String;
    fn from_str(text: &str) -> Result<LoadPhase, String> {
        let wrong = || format!("{text:?}: expected SECONDS@RATE or SECONDS@max");
        let (seconds, rate) = text.split_once('@').ok_or_else(wrong)?;
        Ok(LoadPhase {
            seconds: seconds.parse().map_err(|_| wrong())?,
            rate: match rate {
                "max" => None,
                rate => Some(rate.parse().map_err(|_| wrong())?),
            },
        })
    }
}
