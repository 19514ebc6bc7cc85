//! Programs without any knowledge of the mesh, in pods of a lab whose traffic the mesh carries.
//!
//! They need root, BPF and control groups of version 2, and are skipped with a reason where these are missing. A pod
//! runs another project's unmodified program, or this test binary: the test `in_a_pod::runs`.

mod addresses;
mod capture;
mod counters;
mod cut;
mod deaths;
mod enrollment;
mod envoys;
mod first_connection;
mod gap;
mod holder_deaths;
mod in_a_pod;
mod leftovers;
mod load;
mod policy;
mod privileges;
mod programs;
mod seen;
mod shares;
mod stage;
mod unmodified;
