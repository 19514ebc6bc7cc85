//! Nodes and pods on one machine, as tests and experiments use them.
//!
//! The program `heddle-lab` is built on this; what else it can do, demonstrations and experiments, is in packages of
//! their own.

pub mod lab;
