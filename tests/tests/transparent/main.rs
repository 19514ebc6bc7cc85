//! Programs that know nothing of the mesh, in pods of a lab that it carries.
//!
//! They take root, BPF and control groups of version 2, and say why they are skipped where there is none. What
//! a pod runs is either another project's program, unmodified, or this very one: the test `in_a_pod::runs`.

mod addresses;
mod capture;
mod counters;
mod cut;
mod deaths;
mod enrolment;
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
