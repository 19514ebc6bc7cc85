//! What arrives at pods.

use std::net::{SocketAddr, TcpStream};

use crate::stage::{accept, on_stage};

#[test]
fn what_arrives_reaches_the_listener_under_its_own_address() {
    on_stage(|stage| {
        let mut hooks = stage.hooks();
        let pod = stage.pod(1);
        let _app = stage.serve(&pod, "[::]:8080");
        pod.enrol(&mut hooks);
        for to in ["10.90.1.2:8080", "[fd90:1::2]:8080", "10.90.1.2:9999"] {
            let to: SocketAddr = to.parse().unwrap();
            let client = TcpStream::connect(to).unwrap();
            let (server, from) = accept(&pod.inbound);
            let here = server.local_addr().unwrap();
            assert_eq!(SocketAddr::new(here.ip().to_canonical(), here.port()), to);
            assert_eq!(from, client.local_addr().unwrap());
        }
    });
}
