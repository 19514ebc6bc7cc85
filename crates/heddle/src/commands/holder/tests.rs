use heddle_intercept::hooks::{FullTables, Kind};
use heddle_intercept::request::ProxyStatus;

use super::*;

fn status() -> HolderStatus {
    HolderStatus {
        pid: 7,
        hooks: Kind::Bpf,
        without_bpf: None,
        guard: Some("/sys/fs/bpf/heddle".into()),
        without_guard: None,
        proxy: Some(ProxyStatus { pid: 8, age_s: 61 }),
        guarded: Vec::new(),
    }
}

#[test]
fn hooks_and_guard_are_said_and_why_there_is_none() {
    assert_eq!(how(&status()), "hooks by bpf; guard in /sys/fs/bpf/heddle");
    let unguarded = HolderStatus {
        guard: None,
        without_guard: Some("/x: is on no BPF file system".to_owned()),
        ..status()
    };
    assert_eq!(
        how(&unguarded),
        "hooks by bpf; NO GUARD: /x: is on no BPF file system"
    );
    let filters = HolderStatus {
        hooks: Kind::Nft,
        without_bpf: Some("the kernel does not provide sk_lookup".to_owned()),
        ..unguarded
    };
    assert!(
        how(&filters)
            .starts_with("hooks by nft, since the kernel does not provide sk_lookup; NO GUARD: "),
        "{}",
        how(&filters)
    );
}

#[test]
fn a_proxy_that_does_not_answer_is_told_from_one_that_is_gone() {
    let at = Location::new(Some("/run/heddle.sock".into()));
    let holder = Path::new("/run/holder.sock");
    let hangs = silent(&status(), &at, holder);
    assert!(
        hangs.contains("(process 7, /run/holder.sock)")
            && hangs.contains("(process 8, for 1 min 1 s)"),
        "{hangs}"
    );
    let gone = HolderStatus {
        proxy: None,
        ..status()
    };
    let gone = silent(&gone, &at, holder);
    assert!(gone.contains("has ended and is started again"), "{gone}");
    for said in [hangs, gone] {
        assert!(
            said.contains("heddle pods") && !said.contains("heddle up"),
            "{said}"
        );
    }
}

#[test]
fn a_guarded_namespace_is_called_by_its_path_or_its_number() {
    let guarded = Guarded {
        inode: 4_026_532_000,
        addresses: Vec::new(),
    };
    let known = [(4_026_532_000, PathBuf::from("/run/netns/db"))].into();
    assert_eq!(place(&guarded, &known), "/run/netns/db");
    assert_eq!(place(&guarded, &BTreeMap::new()), "net:[4026532000]");
}

#[test]
fn pods_are_counted() {
    let status = |serving, held| InterceptionStatus {
        holder_socket: "/x".into(),
        serving,
        held,
        full: FullTables::default(),
    };
    for (serving, held, said) in [
        (0, 0, "no pod is enrolled"),
        (2, 0, "2 serving"),
        (2, 1, "2 serving, 1 HELD"),
    ] {
        assert_eq!(pods(&status(serving, held)), said);
    }
}

#[test]
fn pods_that_are_cut_off_are_problems() {
    assert!(problems(None, 0, 0, 0).is_empty());
    let all = problems(Some("timed out"), 2, 1, 1);
    assert_eq!(
        all,
        [
            "the holder of the pods does not answer: timed out",
            "2 pods are held: the mesh has no such workload on this node (heddle pods)",
            "1 pod is lost: enrolled before the holder was restarted, and not since (heddle pods)",
            "1 pod is guarded: refused by the guard of a holder before (heddle pods)",
        ]
    );
}
