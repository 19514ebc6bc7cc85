//! An etcd that answers, but wrongly, is not called in a tight loop.

use std::collections::BTreeMap;
use std::convert::Infallible;
use std::time::Instant;

use bytes::BufMut;
use heddle_compile::registered::ProviderKey;
use tokio::sync::watch;
use tonic::body::Body;
use tonic::codec::{Codec, DecodeBuf, Decoder, EncodeBuf, Encoder};
use tonic::codegen::{BoxFuture, Context, Poll, Service, http};
use tonic::server::{Grpc, NamedService};
use tonic::transport::Server;
use tonic::transport::server::TcpIncoming;
use tonic::{Request, Response, Status, Streaming};

use super::*;

/// Ends a test that hangs.
const TOO_LONG: Duration = Duration::from_secs(60);

/// An etcd whose leases end as soon as they are granted.
#[derive(Clone)]
struct ShortLeases {
    granted: watch::Sender<usize>,
}

impl NamedService for ShortLeases {
    const NAME: &'static str = "etcdserverpb.Lease";
}

impl Service<http::Request<Body>> for ShortLeases {
    type Response = http::Response<Body>;
    type Error = Infallible;
    type Future = BoxFuture<Self::Response, Infallible>;

    fn poll_ready(&mut self, _cx: &mut Context<'_>) -> Poll<Result<(), Infallible>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: http::Request<Body>) -> Self::Future {
        // Lease id 1; field 3 is the time to live, which an ended lease lacks.
        let answer = match request.uri().path() {
            "/etcdserverpb.Lease/LeaseGrant" => {
                self.granted.send_modify(|granted| *granted += 1);
                vec![0x10, 1, 0x18, 2]
            }
            _ => vec![0x10, 1],
        };
        Box::pin(async move {
            let mut grpc = Grpc::new(Raw);
            Ok(grpc.client_streaming(Always(answer), request).await)
        })
    }
}

/// Gives the same answer to every request.
struct Always(Vec<u8>);

impl Service<Request<Streaming<()>>> for Always {
    type Response = Response<Vec<u8>>;
    type Error = Status;
    type Future = std::future::Ready<Result<Self::Response, Status>>;

    fn poll_ready(&mut self, _cx: &mut Context<'_>) -> Poll<Result<(), Status>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, _request: Request<Streaming<()>>) -> Self::Future {
        std::future::ready(Ok(Response::new(self.0.clone())))
    }
}

/// Writes messages as they are, and reads none.
struct Raw;

impl Codec for Raw {
    type Encode = Vec<u8>;
    type Decode = ();
    type Encoder = Raw;
    type Decoder = Raw;

    fn encoder(&mut self) -> Raw {
        Raw
    }

    fn decoder(&mut self) -> Raw {
        Raw
    }
}

impl Encoder for Raw {
    type Item = Vec<u8>;
    type Error = Status;

    fn encode(&mut self, message: Vec<u8>, to: &mut EncodeBuf<'_>) -> Result<(), Status> {
        to.put_slice(&message);
        Ok(())
    }
}

impl Decoder for Raw {
    type Item = ();
    type Error = Status;

    fn decode(&mut self, _from: &mut DecodeBuf<'_>) -> Result<Option<()>, Status> {
        Ok(None)
    }
}

#[tokio::test]
async fn an_etcd_that_ends_leases_at_once_is_given_time() {
    let (granted, mut seen) = watch::channel(0);
    let incoming = TcpIncoming::bind("127.0.0.1:0".parse().expect("an address")).expect("a port");
    let address = incoming.local_addr().expect("an address");
    let serving = Server::builder()
        .add_service(ShortLeases { granted })
        .serve_with_incoming(incoming);
    let access = Access {
        endpoints: vec![format!("http://{address}")],
        ..Access::default()
    };
    let provider = Provider {
        key: ProviderKey::new("shop", "web", "a").expect("a key"),
        address: "10.0.0.1:80".parse().expect("an address"),
        port_name: None,
        weight: None,
        max_requests: None,
        service_account: None,
        node: None,
        labels: BTreeMap::new(),
    };
    let registration = Registration::new(access, &Layout::default(), provider, MIN_TTL)
        .expect("nothing contradicts itself");
    let began = Instant::now();
    let fourth = async {
        let four = timeout(TOO_LONG, seen.wait_for(|granted| *granted >= 4));
        assert!(matches!(four.await, Ok(Ok(_))), "it tries again");
    };
    let mut said = Vec::new();
    tokio::select! {
        ended = serving => panic!("{ended:?}"),
        kept = registration.keep(fourth, |news| said.push(news)) => {
            assert_eq!(said, [], "{kept:?}");
        }
    }
    // Half of the upper bounds of the first three waits.
    let waited = began.elapsed();
    assert!(waited >= Duration::from_millis(700), "{waited:?}");
}
