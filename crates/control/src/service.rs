//! gRPC services of one kind of call, whose calls are streams that last for days.
//!
//! Written by hand, since the frames of such calls are ([`frames`](crate::frames)).

use std::convert::Infallible;
use std::marker::PhantomData;
use std::sync::Arc;
use std::task::{Context, Poll};

use tonic::codegen::{BoxFuture, Service};
use tonic::server::NamedService;
use tonic::{Status, body};

use super::Shared;

/// A service's only method, or two that begin calls of one kind.
pub(super) trait Method: Send + Sync + 'static {
    /// The name of the service.
    const SERVICE: &'static str;
    /// The path of the method.
    const PATH: &'static str;
    /// The path of another method, which is served by the same calls.
    const ALSO: &'static str = Self::PATH;

    /// Begins a call.
    fn begin(
        shared: Arc<Shared>,
        request: http::Request<body::Body>,
    ) -> impl Future<Output = Result<http::Response<body::Body>, Status>> + Send;
}

/// The service of a method, as a router takes it.
pub(super) struct OneMethod<M> {
    shared: Arc<Shared>,
    method: PhantomData<fn() -> M>,
}

impl<M> OneMethod<M> {
    pub(super) fn new(shared: &Arc<Shared>) -> Self {
        OneMethod {
            shared: Arc::clone(shared),
            method: PhantomData,
        }
    }
}

impl<M> Clone for OneMethod<M> {
    fn clone(&self) -> Self {
        Self::new(&self.shared)
    }
}

impl<M: Method> NamedService for OneMethod<M> {
    const NAME: &'static str = M::SERVICE;
}

impl<M: Method> Service<http::Request<body::Body>> for OneMethod<M> {
    type Response = http::Response<body::Body>;
    type Error = Infallible;
    type Future = BoxFuture<Self::Response, Infallible>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Infallible>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: http::Request<body::Body>) -> Self::Future {
        let shared = Arc::clone(&self.shared);
        Box::pin(async move {
            let answer = match request.uri().path() {
                path if path == M::PATH || path == M::ALSO => M::begin(shared, request).await,
                _ => Err(Status::unimplemented("there is no such method")),
            };
            Ok(answer.unwrap_or_else(Status::into_http))
        })
    }
}
