//! `heddle-lab apply`, with and without `--watch`.

use std::collections::BTreeMap;
use std::fs::{self, Metadata};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::time::Duration;

use clap::Args;

use crate::lab::manifests;
use crate::lab::process::pause;
use crate::lab::{Lab, Plan};

/// How often to look for changes. A change is applied once the files have been stable for one interval.
const LOOK_EVERY: Duration = Duration::from_millis(300);

/// Options of `heddle-lab apply`.
#[derive(Args)]
pub struct ApplyOptions {
    /// The file of a lab that is up
    file: PathBuf,
    /// Watch the file and its manifests, and apply each change, until Ctrl-C or until the lab is down
    #[arg(long)]
    watch: bool,
}

/// Applies once, or watches.
///
/// # Errors Those of the first [`Lab::apply`]. Later errors are printed; the next change of a file tries again.
pub(in crate::lab) fn run(options: &ApplyOptions) -> anyhow::Result<()> {
    let file = &options.file;
    let mut seen = look(file);
    let mut lab = Lab::open(&Plan::name_in(file)?)?;
    let changes = lab.apply(file)?;
    println!("lab {}: {changes}", lab.plan().name);
    if !options.watch {
        return Ok(());
    }
    let mut applied = seen.clone();
    loop {
        pause(LOOK_EVERY);
        if !lab.folder().exists() {
            println!("lab {}: it is down", lab.plan().name);
            return Ok(());
        }
        let now = look(file);
        let is_quiet = now == seen;
        seen = now;
        if !is_quiet || seen == applied {
            continue;
        }
        applied.clone_from(&seen);
        match lab.apply(file) {
            Ok(changes) => println!("lab {}: {changes}", lab.plan().name),
            Err(error) => eprintln!("heddle-lab: {error:#}"),
        }
    }
}

/// Stamps of all files, to see whether one has changed.
type Look = BTreeMap<PathBuf, (u64, u64, i64, i64)>;

fn look(file: &Path) -> Look {
    let stamp = |metadata: &Metadata| {
        (
            metadata.ino(),
            metadata.len(),
            metadata.mtime(),
            metadata.mtime_nsec(),
        )
    };
    // A file that is being written, or missing for a moment, counts as a change.
    let manifests = Plan::manifests_of(file).and_then(|folder| manifests::files(&folder));
    let all = manifests.unwrap_or_default().into_iter();
    let all = all.chain([file.to_owned()]);
    all.filter_map(|path| {
        let metadata = fs::metadata(&path).ok()?;
        Some((path, stamp(&metadata)))
    })
    .collect()
}
