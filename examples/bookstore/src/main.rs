//! A small bookstore of four services, for demonstrations.

fn main() {}
