//! Calls another service of the bookstore.

use std::env;
use std::fmt;
use std::time::Duration;

use anyhow::Context;
use axum::http::{HeaderMap, Request, StatusCode, header};
use axum::response::{IntoResponse, Response};
use http_body_util::{BodyExt, Empty, Limited};
use hyper::body::Bytes;
use hyper_util::client::legacy::Client as HttpClient;
use hyper_util::client::legacy::connect::HttpConnector;
use hyper_util::rt::TokioExecutor;
use serde::de::DeserializeOwned;

/// Headers that a service copies from the request it received to the requests it makes.
///
/// A mesh sees single requests; only the application knows which calls belong together. `end-user` is the bookstore's
/// own header: routes may match on it.
const PASSED_ON: [&str; 4] = ["end-user", "traceparent", "tracestate", "x-request-id"];

/// Timeout of a call to another service.
const TIMEOUT: Duration = Duration::from_secs(5);

/// Limit of an answer's body, in bytes.
const ANSWER_LIMIT: usize = 64 * 1024;

/// Calls one other service, over connections kept between calls.
#[derive(Clone)]
pub(crate) struct Client {
    service: &'static str,
    authority: String,
    http: HttpClient<HttpConnector, Empty<Bytes>>,
}

impl Client {
    /// Takes the address of `service` from `<SERVICE>_SERVICE_HOST` and `<SERVICE>_SERVICE_PORT`.
    ///
    /// # Errors
    /// One of the two is not set.
    pub(crate) fn from_env(service: &'static str) -> anyhow::Result<Self> {
        let variable = |end: &str| {
            let name = format!("{}_SERVICE_{end}", service.to_uppercase());
            env::var(&name).with_context(|| format!("{name} is not set: where is {service}?"))
        };
        Ok(Self::new(
            service,
            format!("{}:{}", variable("HOST")?, variable("PORT")?),
        ))
    }

    /// A client of `service` at `authority`, a host and port.
    pub(crate) fn new(service: &'static str, authority: String) -> Self {
        let http = HttpClient::builder(TokioExecutor::new()).build_http();
        Self {
            service,
            authority,
            http,
        }
    }

    /// Requests `path` and parses the JSON answer. `caller` has the headers of the request for which this call is made.
    ///
    /// # Errors
    /// The service does not answer in time, or answers something other than a success with this JSON.
    pub(crate) async fn get<T: DeserializeOwned>(
        &self,
        path: &str,
        caller: &HeaderMap,
    ) -> Result<T, BackendError> {
        let (status, body) = tokio::time::timeout(TIMEOUT, self.fetch(path, caller))
            .await
            .unwrap_or_else(|_| Err(anyhow::anyhow!("no answer within {TIMEOUT:?}")))
            .map_err(|error| self.failed(StatusCode::BAD_GATEWAY, format!("{error:#}")))?;
        match status {
            StatusCode::OK => serde_json::from_slice(&body)
                .map_err(|error| self.failed(StatusCode::BAD_GATEWAY, error.to_string())),
            // A book missing there is missing for our caller, too.
            StatusCode::NOT_FOUND => Err(self.failed(status, format!("no {path}"))),
            _ => Err(self.failed(StatusCode::BAD_GATEWAY, format!("answered {status}"))),
        }
    }

    async fn fetch(&self, path: &str, caller: &HeaderMap) -> anyhow::Result<(StatusCode, Bytes)> {
        let mut request = Request::get(format!("http://{}{path}", self.authority))
            .header(header::ACCEPT, "application/json");
        for name in PASSED_ON {
            if let Some(value) = caller.get(name) {
                request = request.header(name, value);
            }
        }
        let response = self.http.request(request.body(Empty::new())?).await?;
        let status = response.status();
        let body = Limited::new(response.into_body(), ANSWER_LIMIT)
            .collect()
            .await
            .map_err(|error| anyhow::anyhow!("the answer broke off: {error}"))?;
        Ok((status, body.to_bytes()))
    }

    fn failed(&self, status: StatusCode, reason: String) -> BackendError {
        BackendError {
            service: self.service,
            status,
            reason,
        }
    }
}

/// A failed call to another service, which fails the request that needed it.
#[derive(Debug)]
pub(crate) struct BackendError {
    service: &'static str,
    /// The status for our own caller.
    status: StatusCode,
    reason: String,
}

impl fmt::Display for BackendError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.service, self.reason)
    }
}

impl IntoResponse for BackendError {
    fn into_response(self) -> Response {
        eprintln!("{self}");
        (self.status, format!("{self}\n")).into_response()
    }
}
