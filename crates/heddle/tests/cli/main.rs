//! The real binary, as its user meets it.

mod clashes;
mod commands;
mod control;
mod cut;
mod documentation;
mod etcd;
mod harness;
mod lifecycle;
mod node;
mod nodes;
mod operator;
mod policy;
mod qos;
mod registry;
mod service;
mod serving;
mod workloads;
