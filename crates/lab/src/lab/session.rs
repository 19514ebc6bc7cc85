//! The environment of commands run in a lab by hand: the lab's programs, and the sockets of the node they run on.
//!
//! `heddle status` and similar commands look for their sockets in `$XDG_RUNTIME_DIR`. A command on a node of the lab
//! gets a folder of that node there, with the sockets under the names that `heddle` looks for. The programs that the
//! lab was made with come first in `PATH`.

use std::env;
use std::ffi::OsString;
use std::fs::DirBuilder;
use std::io;
use std::os::unix::fs::{DirBuilderExt, symlink};
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::Context;

use super::Lab;

/// `PATH` if the environment has none.
const USUAL_PATH: &str = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin";

/// The name of a link, and its target.
type Named<'n> = (&'n str, PathBuf);

impl Lab {
    /// Puts the lab's programs first in a command's `PATH`.
    ///
    /// # Errors
    /// The folder of the lab cannot be written to.
    pub(super) fn with_programs(&self, command: &mut Command) -> anyhow::Result<()> {
        let folder = self.folder().join("bin");
        let heddle = self.programs.heddle.as_ref();
        let heddle = heddle.map(|heddle| ("heddle", heddle.clone()));
        let lab = Some(("heddle-lab", self.programs.lab.clone()));
        link(&folder, heddle.into_iter().chain(lab))?;
        let path = env::var_os("PATH").unwrap_or_else(|| USUAL_PATH.into());
        command.env("PATH", before(folder, &path)?);
        Ok(())
    }

    /// Makes a command use the sockets of the mesh node with this folder, and no others.
    ///
    /// # Errors
    /// The folder of the lab cannot be written to.
    pub(super) fn with_sockets_of(
        &self,
        command: &mut Command,
        mesh_node: &Path,
    ) -> anyhow::Result<()> {
        let of = mesh_node.file_name().context("a node has a folder")?;
        let sockets = [
            ("heddle.sock", mesh_node.join("admin.sock")),
            ("heddle-holder.sock", mesh_node.join("holder.sock")),
        ];
        self.with_sockets(command, Path::new("nodes").join(of), sockets)
    }

    /// Makes a command use the socket of the control plane, and no others.
    ///
    /// # Errors
    /// The folder of the lab cannot be written to.
    pub(super) fn with_socket_of_control(&self, command: &mut Command) -> anyhow::Result<()> {
        let socket = ("heddle-control.sock", self.control_socket());
        self.with_sockets(command, PathBuf::from("control"), [socket])
    }

    fn with_sockets<const N: usize>(
        &self,
        command: &mut Command,
        of: PathBuf,
        sockets: [Named<'_>; N],
    ) -> anyhow::Result<()> {
        let folder = self.folder().join("run").join(of);
        link(&folder, sockets)?;
        command.env("XDG_RUNTIME_DIR", folder);
        Ok(())
    }
}

/// A search path with `folder` first.
fn before(folder: PathBuf, path: &OsString) -> anyhow::Result<OsString> {
    let folders = std::iter::once(folder).chain(env::split_paths(path));
    env::join_paths(folders).context("PATH")
}

/// Makes a folder of symbolic links, accessible only to its owner. Existing links stay.
fn link<'n>(folder: &Path, links: impl IntoIterator<Item = Named<'n>>) -> anyhow::Result<()> {
    let shown = || folder.display().to_string();
    let made = DirBuilder::new().recursive(true).mode(0o700).create(folder);
    made.with_context(shown)?;
    for (name, target) in links {
        let target = std::path::absolute(target).with_context(shown)?;
        let path = folder.join(name);
        match symlink(&target, &path) {
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {}
            done => done.with_context(|| path.display().to_string())?,
        }
    }
    Ok(())
}
