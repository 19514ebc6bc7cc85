//! Replays every input kept from fuzzing.

use std::collections::BTreeSet;
use std::fs;
use std::panic::catch_unwind;
use std::path::{Path, PathBuf};

/// Defines a test for each target, and the list of targets.
macro_rules! replayed {
    ($($target:ident)*) => {
        const TARGETS: &[&str] = &[$(stringify!($target)),*];
        $(
            #[test]
            fn $target() {
                replay(stringify!($target), heddle_fuzz_checks::$target::check);
            }
        )*
    };
}

replayed! {
    authority beginning body certificate_request discovery forward head_conversion holder_channel link_frames link_heads_decode link_heads_round_trip link_session
    manifest operator_request path preface registry_entries request_head response_head
}

fn fuzz() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../fuzz")
}

/// The file names in a folder, without extensions.
fn stems(folder: &Path) -> BTreeSet<String> {
    let entries = fs::read_dir(folder).unwrap_or_else(|error| panic!("{folder:?}: {error}"));
    let stem = |path: PathBuf| path.file_stem().map(|stem| stem.to_string_lossy().into());
    entries
        .filter_map(|entry| stem(entry.expect("an entry").path()))
        .collect()
}

fn replay(target: &str, check: fn(&[u8])) {
    let folder = fuzz().join("corpus").join(target);
    let entries = fs::read_dir(&folder).unwrap_or_else(|error| panic!("{folder:?}: {error}"));
    let inputs: Vec<PathBuf> = entries
        .map(|entry| entry.expect("an entry").path())
        .collect();
    assert!(!inputs.is_empty(), "{folder:?} has no inputs");
    let is_broken = |path: &&PathBuf| {
        let input = fs::read(path).expect("an input");
        catch_unwind(|| check(&input)).is_err()
    };
    let broken: Vec<&PathBuf> = inputs.iter().filter(is_broken).collect();
    assert!(broken.is_empty(), "these do not pass: {broken:?}");
}

#[test]
fn targets_checks_and_corpora_are_the_same() {
    let targets: BTreeSet<String> = TARGETS.iter().map(ToString::to_string).collect();
    assert_eq!(stems(&fuzz().join("corpus")), targets, "folders of inputs");
    assert_eq!(
        stems(&fuzz().join("fuzz_targets")),
        targets,
        "targets of the fuzzer"
    );
    let manifest = fs::read_to_string(fuzz().join("Cargo.toml")).expect("a manifest");
    let programs = manifest.split("[[bin]]\nname = \"").skip(1);
    let programs = programs.filter_map(|rest| rest.split('"').next());
    let programs: BTreeSet<String> = programs.map(str::to_owned).collect();
    assert_eq!(programs, targets, "programs of the fuzzer");
}
