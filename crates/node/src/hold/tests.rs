use clap::Parser;

use super::*;
use crate::intercept::InterceptFlags;
use crate::settings::GivenSettings;

#[derive(Debug, Parser)]
struct Command {
    #[command(flatten)]
    intercept: InterceptFlags,
}

fn parse(more: &[&str]) -> Result<Interception, clap::Error> {
    let fixed = ["node", "--intercept"];
    let command = Command::try_parse_from(fixed.iter().chain(more))?;
    let mut given = GivenSettings::default();
    command.intercept.over(&mut given);
    Ok(given.checked().expect("no contradiction").node.interception)
}

/// One pod cannot be served with packet filters: this is refused before anything is changed.
#[test]
fn one_pod_takes_hooks_by_bpf() {
    for flags in [
        &["--hooks", "nft"][..],
        &["--hooks", "nft", "--pods-cgroup", "/pods"],
        &[],
    ] {
        let intercept = parse(&[&["--pod", "a/b"], flags].concat()).unwrap();
        let refused = hooks_options(&intercept).unwrap_err().to_string();
        assert!(
            refused.starts_with("--pod needs --pods-cgroup and hooks by BPF: "),
            "{flags:?}: {refused}"
        );
    }
    let without_pod = parse(&["--hooks", "nft"]).unwrap();
    assert_eq!(hooks_options(&without_pod).unwrap().kind, Kind::Nft);
}

#[test]
fn a_proxy_that_does_not_answer_is_replaced_after_30_seconds_unless_told_otherwise() {
    let patience = |flags: &[&str]| parse(flags).map(|it| it.proxy_timeout_s.seconds());
    assert_eq!(patience(&[]).unwrap(), Some(30));
    for (flag, seconds) in [("5", 5), ("5s", 5), ("2m", 120)] {
        assert_eq!(patience(&["--proxy-timeout", flag]).unwrap(), Some(seconds));
    }
    assert_eq!(patience(&["--proxy-timeout", "0"]).unwrap(), None);
    for wrong in ["4", "4s", "86401", "2d", "-1", "soon"] {
        let flag = format!("--proxy-timeout={wrong}");
        let refused = patience(&[&flag]).unwrap_err().to_string();
        assert!(
            refused.contains("expected 0, or 5 to 86400 seconds"),
            "{refused}"
        );
    }
}
