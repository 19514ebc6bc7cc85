//! Checks the settings files of a lab before anything is made.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use anyhow::{Context, bail};

use super::plan::Plan;

/// Has `heddle validate` check every file, since `heddle` itself will read them. Without the program they are not
/// checked.
///
/// # Errors
/// A file is invalid; the error is the output of `heddle validate`.
pub(super) fn check(plan: &Plan, heddle: Option<&Path>) -> anyhow::Result<()> {
    let Some(heddle) = heddle else {
        return Ok(());
    };
    let of_nodes = plan.nodes.iter().filter_map(|node| node.settings.as_ref());
    let files: BTreeSet<&PathBuf> = of_nodes.chain(&plan.settings).collect();
    for file in files {
        let mut command = Command::new(heddle);
        command.arg("validate").arg("--config").arg(file);
        let output = command.stdin(Stdio::null()).output();
        let output = output.with_context(|| format!("cannot run {}", heddle.display()))?;
        if !output.status.success() {
            let said = [output.stdout, output.stderr].concat();
            bail!("{}", String::from_utf8_lossy(&said).trim());
        }
    }
    Ok(())
}
