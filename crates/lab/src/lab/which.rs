//! Choosing the lab of a command.

use anyhow::bail;
use clap::Args;

use super::{LabName, labs};

#[derive(Args)]
pub(super) struct Which {
    /// The lab [default: the only one that is up]
    #[arg(value_name = "NAME")]
    pub(super) lab: Option<LabName>,
}

/// The lab with this name, or else the only lab that is up; `how` is the argument that names one, for the error.
pub(super) fn only(name: Option<&LabName>, how: &str) -> anyhow::Result<LabName> {
    match name {
        Some(name) => Ok(name.clone()),
        None => only_of(&labs(), how),
    }
}

fn only_of(labs: &[LabName], how: &str) -> anyhow::Result<LabName> {
    match labs {
        [only] => Ok(only.clone()),
        [] => bail!("no lab is up (heddle-lab up FILE)"),
        several => {
            let names: Vec<&str> = several.iter().map(LabName::as_str).collect();
            let names = names.join(", ");
            bail!(
                "{} labs are up: {names} (say which with {how})",
                several.len()
            )
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn of_several_labs_one_is_to_be_named_and_all_are_said() {
        let lab = |name| LabName::parse(name).unwrap();
        let why = |labs: &[LabName]| only_of(labs, "--lab NAME").unwrap_err().to_string();
        assert_eq!(only_of(&[lab("a")], "NAME").unwrap(), lab("a"));
        assert!(why(&[]).contains("heddle-lab up FILE"));
        assert_eq!(
            why(&[lab("a"), lab("b")]),
            "2 labs are up: a, b (say which with --lab NAME)"
        );
    }
}
