//! Why an authority cannot start or continue.

use std::fmt;
use std::path::PathBuf;

use heddle_model::TrustDomain;
use heddle_transport::secrets::{Folder, FolderError};

use super::certificate::CaFault;
use super::settings::OutOfBounds;

/// Why an authority cannot start or continue. Each message says what to do about it.
#[derive(Debug)]
pub enum AuthorityError {
    /// A setting is out of its bounds.
    Settings(OutOfBounds),
    /// The state folder, or a file in it, cannot be used.
    Folder(FolderError),
    /// A certificate or a key is unusable; the path names its file.
    Certificate(PathBuf, CaFault),
    /// A file's content is not in the written form; the text says what is wrong.
    Corrupt(PathBuf, String),
    /// The folder's files do not belong together.
    Lost(PathBuf, Lost),
    /// The cryptography library failed: only a lack of memory or of random bytes explains that.
    Signing,
}

/// How the files of a state folder contradict each other.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Lost {
    /// The state file is missing while others are there.
    State,
    /// A node keeps its state in the folder.
    OfANode,
    /// A root would have to be made, but the folder is not empty.
    NotEmpty,
    /// A file that the others refer to is missing.
    File,
    /// The state records a deny-list, but its file is missing.
    DenyList,
    /// The folder has both a root's key and a site's intermediate.
    TwoSigners,
    /// A root differs from the one that the state file names.
    OtherRoot,
    /// The state is of the first trust domain, the settings name the second.
    TrustDomain(TrustDomain, TrustDomain),
}

impl AuthorityError {
    pub(super) fn corrupt(folder: &Folder, name: &str, why: String) -> Self {
        Self::Corrupt(folder.path_of(name), why)
    }
}

impl From<FolderError> for AuthorityError {
    fn from(error: FolderError) -> Self {
        Self::Folder(error)
    }
}

impl From<OutOfBounds> for AuthorityError {
    fn from(error: OutOfBounds) -> Self {
        Self::Settings(error)
    }
}

impl fmt::Display for AuthorityError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Settings(error) => error.fmt(f),
            Self::Folder(error) => error.fmt(f),
            Self::Certificate(path, fault) => write!(f, "{}: {fault}", path.display()),
            Self::Corrupt(path, why) => write!(
                f,
                "{}: it is damaged: {why} (restore it from a backup; no new root is made in its place)",
                path.display()
            ),
            Self::Lost(path, lost) => write!(f, "{}: {lost}", path.display()),
            Self::Signing => f.write_str(
                "the cryptography library failed (look at the memory of this machine, and try again)",
            ),
        }
    }
}

impl fmt::Display for Lost {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::State => f.write_str(
                "it is gone, while other files of an authority are there (restore it from a \
                 backup, or begin with an empty folder and let every node join again)",
            ),
            Self::OfANode => f.write_str(
                "a node keeps its state in this folder, and an authority needs one of its own (name another \
                 folder with --state)",
            ),
            Self::NotEmpty => f.write_str(
                "it is no file of an authority, and a new root is made only in an empty folder (name \
                 another folder with --state, or move away what is in this one; if this authority's own files were lost, \
                 restore the backup: nodes trust no other root)",
            ),
            Self::File => f.write_str(
                "it is not there (restore or supply it; when this authority has never run, remove \
                 the other files of its folder instead)",
            ),
            Self::DenyList => f.write_str(
                "it is not there, and the peers that it refused would be let in again (restore it from a \
                 backup; to begin with an empty list, put {\"version\":1,\"generation\":0,\"entries\":[]} \
                 into it, with mode 0600)",
            ),
            Self::TwoSigners => f.write_str(
                "the folder holds root.key and an intermediate (keep one: root.key to sign with \
                 the root, intermediate.pem and intermediate.key to sign for a site)",
            ),
            Self::OtherRoot => f.write_str(
                "it is another root than before (restore it; to trust a new root, rotate)",
            ),
            Self::TrustDomain(own, wanted) => write!(
                f,
                "it is of the trust domain {own}, the settings say {wanted} (set it back, or choose \
                 an empty folder)"
            ),
        }
    }
}

impl std::error::Error for AuthorityError {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match self {
            Self::Settings(error) => Some(error),
            Self::Folder(error) => Some(error),
            Self::Certificate(_, fault) => Some(fault),
            Self::Corrupt(..) | Self::Lost(..) | Self::Signing => None,
        }
    }
}
