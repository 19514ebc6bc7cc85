use super::*;

fn found(missing: &[&str]) -> Vec<Finding> {
    let names = ["privileges", "cgroup2", "bpffs", "transparent", "nft"];
    let names = names.into_iter().chain(GROUPS.map(|(name, _)| name));
    let tried = |name: &str| match missing.contains(&name) {
        true => Err("not here"),
        false => Ok(()),
    };
    names.map(|name| finding(name, "", tried(name))).collect()
}

#[test]
fn bpf_is_taken_when_it_is_whole_else_nft() {
    let cases: [(&[&str], Option<&str>); 7] = [
        (&[], Some("bpf")),
        (&["bpffs"], Some("bpf")),
        (&["nft"], Some("bpf")),
        (&["sk_lookup"], Some("nft")),
        (&["cgroup2"], Some("nft")),
        (&["getsockopt", "nft"], None),
        (&["privileges"], None),
    ];
    for (missing, kind) in cases {
        assert_eq!(choice(&found(missing)), kind, "{missing:?}");
    }
}

#[test]
fn privileges_are_those_that_are_in_force() {
    let status = |effective: &str| format!("CapPrm:\t000001ffffffffff\nCapEff:\t{effective}\n");
    assert_eq!(lacking(&status("000001ffffffffff")), Some(vec![]));
    assert_eq!(
        lacking(&status("0000000000001000")),
        Some(vec!["CAP_SYS_ADMIN"])
    );
    assert_eq!(lacking("CapEff:\tmany\n"), None);
    assert_eq!(lacking(""), None);
}

#[test]
fn a_finding_is_one_line() {
    let finding = finding("nft", "hooks", Err("first\nsecond"));
    assert_eq!(finding.to_string(), "nft          no   hooks: first second");
}

#[test]
fn this_machine_is_looked_at_and_left_as_it_was() {
    let groups = || {
        let (_, at) = cgroup::mounted().ok()?;
        let names = fs::read_dir(at)
            .ok()?
            .filter_map(|entry| Some(entry.ok()?.file_name()));
        Some(
            names
                .filter(|name| name.to_string_lossy().starts_with("heddle-probe"))
                .count(),
        )
    };
    let probe = probe();
    eprintln!("{probe}");
    assert!(!serde_json::to_string(&probe).unwrap().is_empty());
    assert_eq!(groups().unwrap_or(0), 0);
    if privileges().is_err() {
        heddle_skips::skipped("without root there is nothing to be found");
        return;
    }
    let namespaces = probe
        .findings
        .iter()
        .find(|found| found.name == "transparent")
        .unwrap();
    assert!(namespaces.is_there(), "{namespaces}");
}
