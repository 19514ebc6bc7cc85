//! The real binary, as its user meets it.

mod commands;
mod control;
mod documentation;
mod harness;
mod lifecycle;
mod node;
mod nodes;
mod operator;
mod policy;
mod serving;
mod workloads;
