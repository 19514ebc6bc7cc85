//! Nodes and pods on one machine, as tests and experiments use them.
//!
//! The program `heddle-lab` is built on this library; its other commands, demonstrations and experiments, are in
//! packages of their own.

pub mod lab;
