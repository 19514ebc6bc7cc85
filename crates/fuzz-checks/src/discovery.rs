//! What a control plane sends a node does no harm, whatever it is: the node goes on with a mesh that holds its promises.

use heddle_model::NodeName;
use heddle_xds::NodeMesh;
use heddle_xds::proto::DiscoveryResponse;
use prost::Message;

/// Takes a sequence of messages, each with its length before it (a varint), as protobuf streams have them. An empty one
/// breaks the call, and the next begins.
pub fn check(data: &[u8]) {
    let mut mesh = NodeMesh::new(NodeName::parse("own").unwrap());
    mesh.connected();
    let mut rest = data;
    while !rest.is_empty() {
        let Ok(response) = DiscoveryResponse::decode_length_delimited(&mut rest) else {
            return;
        };
        if response == DiscoveryResponse::default() {
            mesh.connected();
        }
        match mesh.accept(response) {
            Ok(Some(update)) => update.mesh.check_part().unwrap(),
            Ok(None) => {}
            Err(_) => mesh.connected(),
        }
        // What it says to that.
        while let Some(request) = mesh.request() {
            assert!(request.encoded_len() <= heddle_xds::MAX_DISCOVERY_REQUEST_BYTES);
        }
    }
}
