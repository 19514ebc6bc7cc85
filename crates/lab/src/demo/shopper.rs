//! A client that browses the bookstore, at an even rate, and remembers what it saw.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use anyhow::{Context, bail};
use http_body_util::{BodyExt, Empty, Limited};
use hyper::body::Bytes;
use hyper::{Request, StatusCode, header};
use hyper_util::client::legacy::Client;
use hyper_util::client::legacy::connect::HttpConnector;
use hyper_util::rt::TokioExecutor;
use serde::Deserialize;
use tokio::task::JoinSet;
use tokio::time::{MissedTickBehavior, interval_at, sleep, timeout};

/// How many pages are opened at the same time at most.
const SHOPPERS: u32 = 10;
/// How long a page may take.
const PAGE_LIMIT: Duration = Duration::from_secs(5);
/// The longest answer that is read, in bytes.
const ANSWER_LIMIT: usize = 4 * 1024 * 1024;
/// How many failures are told in words; the rest are only counted.
const TOLD_FAILURES: usize = 5;
/// How long the services may take to answer the first page.
const OPENING_LIMIT: Duration = Duration::from_secs(20);

/// An HTTP client that keeps its connections.
#[derive(Clone)]
pub(super) struct Browser(Client<HttpConnector, Empty<Bytes>>);

impl Browser {
    pub(super) fn new() -> Self {
        Self(Client::builder(TokioExecutor::new()).build_http())
    }

    /// Reads `url`.
    ///
    /// # Errors
    /// It does not answer in time, or with anything but 200.
    pub(super) async fn get(&self, url: &str, accept: &str) -> anyhow::Result<String> {
        timeout(PAGE_LIMIT, self.try_get(url, accept))
            .await
            .with_context(|| format!("no answer within {PAGE_LIMIT:?}"))?
    }

    async fn try_get(&self, url: &str, accept: &str) -> anyhow::Result<String> {
        let request = Request::get(url)
            .header(header::ACCEPT, accept)
            .body(Empty::new())?;
        let response = self.0.request(request).await?;
        let status = response.status();
        let body = Limited::new(response.into_body(), ANSWER_LIMIT)
            .collect()
            .await;
        let body = body.map_err(|error| anyhow::anyhow!("the answer broke off: {error}"))?;
        let body = String::from_utf8_lossy(&body.to_bytes()).into_owned();
        if status != StatusCode::OK {
            bail!("{status}: {}", body.trim());
        }
        Ok(body)
    }
}

/// What the demo reads of a page.
#[derive(Deserialize)]
struct Page {
    reviews: Reviews,
}

#[derive(Deserialize)]
struct Reviews {
    version: Version,
}

#[derive(Clone, Copy, Deserialize)]
#[serde(rename_all = "lowercase")]
enum Version {
    V1,
    V2,
}

/// What the shopper saw so far.
#[derive(Clone, Debug, Default)]
pub(super) struct Tally {
    /// Pages with reviews v1, and with v2.
    pub(super) versions: [u64; 2],
    /// Pages that did not come as they should.
    pub(super) failures: u64,
    /// The first of those, in words.
    pub(super) told: Vec<String>,
}

impl Tally {
    /// What was seen since an earlier look.
    pub(super) fn since(&self, earlier: &Tally) -> Tally {
        Tally {
            versions: [0, 1].map(|index| self.versions[index] - earlier.versions[index]),
            failures: self.failures - earlier.failures,
            told: self
                .told
                .get(earlier.told.len()..)
                .unwrap_or_default()
                .to_vec(),
        }
    }

    fn record(&mut self, outcome: anyhow::Result<Version>) {
        match outcome {
            Ok(Version::V1) => self.versions[0] += 1,
            Ok(Version::V2) => self.versions[1] += 1,
            Err(error) => {
                self.failures += 1;
                if self.told.len() < TOLD_FAILURES {
                    self.told.push(format!("{error:#}"));
                }
            }
        }
    }
}

/// A running shopper; stops when dropped.
pub(super) struct Shopper {
    tally: Arc<Mutex<Tally>>,
    /// Held for its drop, which ends the tasks.
    _tasks: JoinSet<()>,
}

impl Shopper {
    /// Opens `page` `rate` times a second from now on.
    pub(super) fn start(page: &str, rate: u32) -> Self {
        let tally = Arc::new(Mutex::new(Tally::default()));
        let browser = Browser::new();
        let mut tasks = JoinSet::new();
        let pace = Duration::from_secs(1) / rate;
        for index in 0..SHOPPERS {
            let (tally, browser, page) = (tally.clone(), browser.clone(), page.to_owned());
            // Their turns are spread evenly, so that pages are opened one after the other.
            let mut turns = interval_at((Instant::now() + pace * index).into(), pace * SHOPPERS);
            turns.set_missed_tick_behavior(MissedTickBehavior::Delay);
            tasks.spawn(async move {
                loop {
                    turns.tick().await;
                    let outcome = open(&browser, &page).await;
                    tally
                        .lock()
                        .unwrap_or_else(PoisonError::into_inner)
                        .record(outcome);
                }
            });
        }
        Self {
            tally,
            _tasks: tasks,
        }
    }

    /// What it saw so far.
    pub(super) fn tally(&self) -> Tally {
        self.tally
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .clone()
    }
}

/// Waits until the bookstore's services have started and a page comes as it should.
///
/// # Errors
/// What the last page said, when none came in time.
pub(super) async fn first_page(page: &str) -> anyhow::Result<()> {
    let browser = Browser::new();
    let deadline = Instant::now() + OPENING_LIMIT;
    loop {
        match open(&browser, page).await {
            Ok(_) => return Ok(()),
            Err(error) if Instant::now() > deadline => return Err(error),
            Err(_) => sleep(Duration::from_millis(50)).await,
        }
    }
}

async fn open(browser: &Browser, page: &str) -> anyhow::Result<Version> {
    let body = browser.get(page, "application/json").await?;
    let page: Page = serde_json::from_str(&body).context("the page is not what it should be")?;
    Ok(page.reviews.version)
}
