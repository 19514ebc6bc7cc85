//! Tests of the hooks in the running kernel: pods in network namespaces, a node, and connections between them.
//!
//! These tests make control groups, namespaces and BPF programs, so they need root. Where something is missing
//! they report a skip and prove nothing.

#![allow(clippy::unwrap_used, reason = "in a test a panic is the message")]

mod agent;
mod associations;
mod capture;
mod cost;
mod datagrams;
mod families;
mod guards;
mod handshakes;
mod inbound;
mod killed;
mod nft;
mod outbound;
mod pins;
mod stage;
mod states;
mod transparent;
