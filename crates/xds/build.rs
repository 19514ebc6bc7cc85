//! Compiles the protocol without protoc.

use std::error::Error;

fn main() -> Result<(), Box<dyn Error>> {
    let files = [
        "heddle/v1/authority.proto",
        "heddle/v1/mesh.proto",
        "heddle/v1/resources.proto",
    ];
    for file in files {
        println!("cargo::rerun-if-changed=proto/{file}");
    }
    let descriptors = protox::compile(files, ["proto"])?;
    tonic_prost_build::configure()
        // A resource goes to many nodes: `Bytes` is shared instead of copied.
        .bytes(".heddle.v1.Resource.content")
        // In the order of the keys: equal content has equal bytes.
        .btree_map(".")
        .codec_path("crate::codec::Codec")
        // It holds a secret; `Debug` is written by hand.
        .skip_debug([".heddle.v1.JoinRequest"])
        .compile_fds(descriptors)?;
    Ok(())
}
