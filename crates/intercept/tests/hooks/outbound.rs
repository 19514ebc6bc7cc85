//! What pods dial.

use std::io::{Read, Write};
use std::net::SocketAddr;

use heddle_intercept::{Family, original_destination};

use crate::stage::{accept, on_stage};

#[test]
fn a_connection_to_the_mesh_reaches_the_listener_which_learns_where_it_was_going() {
    on_stage(|stage| {
        let mut hooks = stage.hooks();
        let pod = stage.pod(1);
        pod.enrol(&mut hooks);
        let destinations = [
            (Family::V4, "10.96.1.2:8080", "10.96.1.2:8080"),
            (Family::V6, "[fd96::7]:443", "[fd96::7]:443"),
            (Family::V6, "[::ffff:10.96.1.3]:80", "10.96.1.3:80"),
        ];
        for (family, dialled, original) in destinations {
            let dialled: SocketAddr = dialled.parse().unwrap();
            let original: SocketAddr = original.parse().unwrap();
            let mut client = stage.connect_by(&pod, family, dialled).unwrap();
            let (mut server, _) = accept(&pod.outbound);
            assert_eq!(
                original_destination(&server).unwrap(),
                original,
                "{dialled}"
            );
            assert_eq!(
                client.peer_addr().unwrap(),
                dialled,
                "what the program is told"
            );
            client.write_all(b"ping").unwrap();
            let mut bytes = [0; 4];
            server.read_exact(&mut bytes).unwrap();
            server.write_all(b"pong").unwrap();
            client.read_exact(&mut bytes).unwrap();
            assert_eq!(&bytes, b"pong");
        }
    });
}
