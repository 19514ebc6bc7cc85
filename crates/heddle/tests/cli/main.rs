//! The real binary, as its user meets it.

mod commands;
mod documentation;
mod harness;
mod lifecycle;
mod operator;
mod policy;
mod serving;
mod workloads;
