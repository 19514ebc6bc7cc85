//! Somebody who asks a service the same thing again and again, and remembers what it was told.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use anyhow::Context;
use http_body_util::{BodyExt, Empty, Limited};
use hyper::Request;
use hyper::body::Bytes;
use hyper_util::client::legacy::Client;
use hyper_util::client::legacy::connect::HttpConnector;
use hyper_util::rt::TokioExecutor;
use tokio::sync::Notify;
use tokio::task::JoinHandle;
use tokio::time::{interval, timeout};

/// How long an answer may take.
const ANSWER_LIMIT: Duration = Duration::from_secs(5);
/// The longest answer that is read, in bytes.
const BODY_LIMIT: usize = 64 * 1024;
/// Between two requests.
const PACE: Duration = Duration::from_millis(100);

/// Answers by what they said: the status, and the reason that a proxy gives when it refuses.
pub(super) type Answers = BTreeMap<String, u64>;

/// Answers in words.
pub(super) fn told(answers: &Answers) -> String {
    let each = answers.iter();
    let each = each.map(|(answer, times)| format!("{answer} ({times} times)"));
    each.collect::<Vec<_>>().join(", ")
}

/// Asks `url` once, and says what came: the status, with the proxy's reason if it gave one.
///
/// # Errors
/// No answer came.
pub(super) async fn ask(url: &str) -> anyhow::Result<String> {
    try_ask(&client(), url).await
}

/// Somebody who asks; stops when dropped.
pub(super) struct Caller {
    task: JoinHandle<Answers>,
    enough: Arc<Notify>,
}

impl Caller {
    /// Asks `url` ten times a second from now on.
    pub(super) fn start(url: &str) -> Self {
        let enough = Arc::new(Notify::new());
        let (told, url) = (Arc::clone(&enough), url.to_owned());
        let task = tokio::spawn(async move {
            let client = client();
            let mut answers = Answers::new();
            let mut turns = interval(PACE);
            loop {
                tokio::select! {
                    _ = turns.tick() => {}
                    () = told.notified() => return answers,
                }
                let answer = try_ask(&client, &url).await;
                let answer = answer.unwrap_or_else(|error| format!("{error:#}"));
                *answers.entry(answer).or_default() += 1;
            }
        });
        Self { task, enough }
    }

    /// Stops when the request under way has its answer, and says what it was told.
    pub(super) async fn finish(mut self) -> Answers {
        self.enough.notify_one();
        (&mut self.task).await.unwrap_or_default()
    }
}

impl Drop for Caller {
    fn drop(&mut self) {
        self.task.abort();
    }
}

type HttpClient = Client<HttpConnector, Empty<Bytes>>;

fn client() -> HttpClient {
    Client::builder(TokioExecutor::new()).build_http()
}

async fn try_ask(client: &HttpClient, url: &str) -> anyhow::Result<String> {
    let request = Request::get(url).body(Empty::new())?;
    let exchange = async {
        let response = client.request(request).await?;
        let reason = response.headers().get("heddle-reason");
        let reason = reason.and_then(|reason| reason.to_str().ok());
        let answer = match reason {
            Some(reason) => format!("{} {reason}", response.status().as_u16()),
            None => response.status().as_u16().to_string(),
        };
        // Read to its end, so that the connection is used again.
        let body = Limited::new(response.into_body(), BODY_LIMIT).collect();
        let body = body.await;
        body.map_err(|error| anyhow::anyhow!("the answer broke off: {error}"))?;
        anyhow::Ok(answer)
    };
    timeout(ANSWER_LIMIT, exchange)
        .await
        .with_context(|| format!("no answer within {ANSWER_LIMIT:?}"))?
}
