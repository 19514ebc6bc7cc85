//! The checks of the fuzz targets, as plain functions.
//!
//! Each fuzz target in `fuzz/` calls the `check` of the module of its name. A test that replays the inputs kept in
//! `fuzz/corpus` calls them too, and needs no nightly compiler. A check panics when a property is broken.
#![allow(clippy::unwrap_used, reason = "a check is there to panic")]
#![allow(
    clippy::missing_panics_doc,
    reason = "each module says what its check holds"
)]

mod naive;

pub mod authority;
pub mod beginning;
pub mod body;
#[cfg(feature = "mesh")]
pub mod certificate_request;
#[cfg(feature = "mesh")]
pub mod discovery;
pub mod forward;
#[cfg(feature = "mesh")]
pub mod head_conversion;
pub mod holder_channel;
pub mod link_frames;
pub mod link_heads_decode;
pub mod link_heads_round_trip;
pub mod link_session;
pub mod manifest;
#[cfg(feature = "mesh")]
pub mod operator_request;
pub mod path;
pub mod preface;
#[cfg(feature = "mesh")]
pub mod registry_entries;
pub mod request_head;
pub mod response_head;
