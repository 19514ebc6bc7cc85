//! What no other user may read: folders of keys, keys in PEM, random bytes, join tokens.
//!
//! An authority and a node keep their secrets in the same way. Private keys are cleared from memory when they are
//! dropped, and no copy of one is left behind by a buffer that grew.

mod folder;
pub mod pem;
mod random;
mod token;

pub use folder::{Folder, FolderError, Lock};
pub use random::{fill, random_text};
pub use token::{JoinToken, TokenId, TokenSecret};
