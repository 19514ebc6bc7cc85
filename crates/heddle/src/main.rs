//! Heddle, a service mesh with one proxy per node.

fn main() {}
