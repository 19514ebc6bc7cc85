//! The codec of all gRPC calls: that of `prost`, with small buffers.

use std::marker::PhantomData;

use prost::Message;
use tonic::codec::{BufferSettings, Codec as GrpcCodec};
use tonic_prost::ProstCodec;

/// Bytes that a buffer has from the start, in each direction of a call. It grows with the messages, most of which are
/// small, while calls last for days, and a control plane has two from each node.
const BUFFER: usize = 512;
/// Messages of one moment are collected up to so many bytes before they are sent.
const SENT_AT: usize = 32 << 10;

/// Encodes `T` and decodes `U`.
#[derive(Debug)]
pub(crate) struct Codec<T, U>(PhantomData<(T, U)>);

impl<T, U> Default for Codec<T, U> {
    fn default() -> Self {
        Codec(PhantomData)
    }
}

impl<T, U> GrpcCodec for Codec<T, U>
where
    T: Message + Send + 'static,
    U: Message + Default + Send + 'static,
{
    type Encode = T;
    type Decode = U;
    type Encoder = <ProstCodec<T, U> as GrpcCodec>::Encoder;
    type Decoder = <ProstCodec<T, U> as GrpcCodec>::Decoder;

    fn encoder(&mut self) -> Self::Encoder {
        ProstCodec::<T, U>::raw_encoder(settings())
    }

    fn decoder(&mut self) -> Self::Decoder {
        ProstCodec::<T, U>::raw_decoder(settings())
    }
}

fn settings() -> BufferSettings {
    BufferSettings::new(BUFFER, SENT_AT)
}
