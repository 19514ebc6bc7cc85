//! Default folder for durable state: the authority of a control plane, the identity of a node.

use std::env;
use std::ffi::OsString;
use std::fs::DirBuilder;
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};

use anyhow::{Context, anyhow};
use rustix::process::geteuid;

/// Default for root (Filesystem Hierarchy Standard, section 5.8).
const SYSTEM: &str = "/var/lib/heddle";

/// The given folder, else the default for the state of `whose`. Creates the folders above it, accessible to this user
/// only; the caller creates the folder itself.
///
/// # Errors
/// When there is no default, or a folder cannot be created.
pub fn folder(given: Option<PathBuf>, whose: &str) -> anyhow::Result<PathBuf> {
    let folder = named(given, whose)?;
    if let Some(above) = folder.parent().filter(|above| *above != Path::new("")) {
        let made = DirBuilder::new().mode(0o700).recursive(true).create(above);
        made.with_context(|| {
            let above = above.display();
            format!("cannot make {above}: choose another folder with --state")
        })?;
    }
    Ok(folder)
}

/// Like [`folder`], but creates nothing.
///
/// # Errors
/// When there is no default.
pub fn named(given: Option<PathBuf>, whose: &str) -> anyhow::Result<PathBuf> {
    match given {
        Some(given) => Ok(given),
        None => default(
            whose,
            env::var_os("XDG_STATE_HOME"),
            env::home_dir(),
            geteuid().is_root(),
        )
        .ok_or_else(|| anyhow!("there is no home folder: name one for the state with --state")),
    }
}

/// By the XDG base directory specification, durable state that is not configuration belongs in `$XDG_STATE_HOME`; a
/// relative path there is ignored.
fn default(
    whose: &str,
    state_home: Option<OsString>,
    home: Option<PathBuf>,
    is_root: bool,
) -> Option<PathBuf> {
    if is_root {
        return Some(Path::new(SYSTEM).join(whose));
    }
    let is_absolute = |path: &PathBuf| path.is_absolute();
    let state_home = state_home.map(PathBuf::from).filter(is_absolute);
    let home = home.filter(is_absolute);
    let state = state_home.or_else(|| Some(home?.join(".local/state")))?;
    Some(state.join("heddle").join(whose))
}

#[cfg(test)]
mod tests {
    use std::path::PathBuf;

    use super::default;

    #[test]
    fn the_default_is_the_users_own() {
        let home = || Some(PathBuf::from("/home/u"));
        for (state_home, home, is_root, wanted) in [
            (Some("/s"), home(), false, Some("/s/heddle/control")),
            (
                None,
                home(),
                false,
                Some("/home/u/.local/state/heddle/control"),
            ),
            (
                Some("s"),
                home(),
                false,
                Some("/home/u/.local/state/heddle/control"),
            ),
            (Some("/s"), home(), true, Some("/var/lib/heddle/control")),
            (None, None, false, None),
        ] {
            let found = default("control", state_home.map(Into::into), home, is_root);
            assert_eq!(found, wanted.map(PathBuf::from));
        }
    }
}
