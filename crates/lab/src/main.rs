//! Demonstrations and experiments for Heddle, beside its peers.

fn main() {}
