//! Secrets that no other user may read: folders of keys, keys in PEM, random bytes, join tokens.
//!
//! The authority and the nodes store their secrets in the same way. Private keys are erased from memory when they are
//! dropped, and a buffer that holds one never reallocates, which would leave a copy behind.

mod folder;
pub mod pem;
mod random;
mod token;

pub use folder::{Folder, FolderError, Lock};
pub use random::{fill, random_text};
pub use token::{JoinToken, TokenId, TokenSecret};
