use super::*;

/// The size of the future that a function would return.
fn future_size<A, F: Future>(_: impl FnOnce(A) -> F) -> usize {
    size_of::<F>()
}

#[test]
fn a_connection_costs_little() {
    // Ten thousand idle connections should be a matter of megabytes.
    let size = future_size(Connection::serve);
    assert!(
        size <= 2304,
        "the future of a connection takes {size} bytes"
    );
}
