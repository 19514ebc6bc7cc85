//! A node of a mesh, from its command line down to what stands around the proxy.
//!
//! ```text
//!   command ──► hold: the holder's process ─ ─ starts ─ ─► command --held
//!      │
//!      └──────► run ──► agent: meshes, identities ──┐
//!                 │                                 ▼ changes
//!                 └──────────────────────────────► serving ──► heddle_proxy::Proxy
//! ```
//!
//! [`command`] is `heddle node`, which is also all that the program `heddle-node` is. [`serving`] does not know where
//! meshes come from: `heddle up` serves those that it reads from a folder. Below it is what every process of Heddle
//! has: the [`admin`] socket, [`settings`], the log, exit codes.

// They panic when no process reads: `exit::say` does not.
#![cfg_attr(not(test), warn(clippy::print_stderr, clippy::print_stdout))]

pub mod admin;
mod agent;
pub mod arguments;
pub mod command;
mod console;
pub mod exit;
mod held;
pub mod hold;
pub mod hygiene;
mod intercept;
mod logging;
mod program_pages;
mod run;
pub mod serving;
pub mod settings;
pub mod state_folder;
pub mod status;
pub mod table;
pub mod time;
mod user;
