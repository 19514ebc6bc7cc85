//! What goes on when the configuration changes, and what does not.

use std::net::SocketAddr;

use crate::failures::GET;
use crate::support::{Bed, mesh, serve};

#[test]
fn turns_go_on_where_they_were() {
    let mut endpoints: Vec<SocketAddr> = (0..3u8).map(|n| serve(move |_| n.to_string())).collect();
    endpoints.sort();
    let bed = Bed::new(&endpoints);
    let mut client = bed.client();
    let mut seen = std::collections::BTreeSet::new();
    for generation in 2..5u32 {
        client.send(GET);
        seen.insert(client.response().body);
        let mut next = mesh(&endpoints, None);
        next.generation = generation.into();
        bed.proxy.apply(&next);
        let generation = f64::from(generation);
        bed.expect_metric("heddle_worker_config_generation", &[], generation);
    }
    assert_eq!(seen.len(), 3, "each had one of three requests: {seen:?}");
}
