//! A node of a mesh, from its command line down to the modules around the proxy.
//!
//! ```text
//!   command ──► hold: the holder's process ─ ─ starts ─ ─► command --held
//!      │
//!      └──────► run ──► agent: meshes, identities ──┐
//!                 │                                 ▼ changes
//!                 └──────────────────────────────► serving ──► heddle_proxy::Proxy
//! ```
//!
//! [`command`] is `heddle node`, and the whole of the program `heddle-node`. [`serving`] does not know where meshes
//! come from: `heddle up` serves meshes that it reads from a folder. The other modules are common to every process of
//! Heddle: the [`admin`] socket, [`settings`], the log, exit codes.

// `print!` and `eprint!` panic when the reader has closed the pipe; `exit::say` does not.
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
pub mod logging;
mod program_pages;
mod qos_agent;
mod run;
pub mod service_manager;
pub mod serving;
pub mod settings;
pub mod state_folder;
pub mod status;
pub mod table;
pub mod time;
mod user;

pub use heddle_proxy::{give_back_heap, use_one_heap};
