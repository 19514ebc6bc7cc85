//! Follows the registry: carries out the decisions of [`Core`] with a network and a clock.
//!
//! One thread talks to one endpoint at a time; after a failure it waits, then uses the next one. It validates what it
//! reads, so no other thread waits for that. It passes the result to the watcher that compiles, through a channel that
//! holds only the newest state: a flood of changes costs no more compilations than there is time for.

use std::convert::Infallible;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::time::{Duration, Instant};

use etcd_client::{Client, GetOptions, WatchOptions};
use heddle_compile::registered::{Layout, Providers};
use tokio::runtime::{Builder, Runtime};
use tokio::sync::{oneshot, watch};
use tokio::task::yield_now;
use tokio::time::{MissedTickBehavior, interval, sleep, sleep_until, timeout};

use super::access::Trouble;
use super::core::{Change, Core, Next, Page};
use super::pause::Pause;
use super::{Access, AccessError};

mod answer;

#[cfg(test)]
mod tests;

/// Keys on the first page of a list, and on a later one at most.
const FIRST_PAGE: i64 = 64;
const MAX_PAGE: i64 = 1_024;
/// Bytes of a page: after one of fewer, the next has more keys, since each page costs etcd time for all keys that follow.
const PAGE_BYTES: usize = 256 << 10;
/// Limit of one answer in bytes. For a larger page fewer keys are requested.
const MAX_ANSWER_BYTES: usize = 8 << 20;
/// Changes validated before yielding: validation takes time, and the connection needs its keepalives meanwhile.
const AT_A_TIME: usize = 32;
/// Timeout of one answer.
const ANSWER_WAIT: Duration = Duration::from_secs(5);
/// How often etcd is asked for the watch's progress, and how many of these requests may stay unanswered in a row: a
/// watch can be lost although its connection is not.
const ASK_EVERY: Duration = Duration::from_secs(10);
const MAX_UNANSWERED: u32 = 3;
/// The time between two states that are passed on is at least this.
const SHORTEST_REST: Duration = Duration::from_millis(10);
/// It grows by this for each key, up to a limit: a node that is told of several changes at a time costs less.
const REST_PER_KEY: Duration = Duration::from_micros(5);
const LONGEST_GATHERING: Duration = Duration::from_millis(50);
/// It is at least this for each key: what a state costs grows with the keys, whatever has changed.
const COST_PER_KEY: Duration = Duration::from_nanos(2_500);
/// The wait before another list of a registry that was too full.
const LIST_AGAIN: Duration = Duration::from_secs(1);

/// Follows a registry until it is dropped.
#[derive(Debug)]
pub struct Follower {
    providers: watch::Receiver<Arc<Providers>>,
    seen: watch::Receiver<Seen>,
    /// Ends the thread when dropped.
    _stop: oneshot::Sender<Infallible>,
}

/// The state of the connection to the registry.
#[derive(Debug, Clone)]
pub struct Seen {
    /// The endpoint in use, or used last.
    pub endpoint: String,
    /// Whether the watch is established.
    pub connected: bool,
    /// When `connected` last changed.
    pub since: Instant,
    /// Why the registry is not reached.
    pub problem: Option<String>,
    /// The revision up to which every change is known.
    pub revision: i64,
    /// How many providers are valid on their own.
    pub providers: usize,
    /// Pages of lists that were read.
    pub pages: u64,
}

impl Follower {
    /// Starts a thread that follows the registry.
    ///
    /// # Errors
    /// As [`Access::check`], and when no thread can be started. An endpoint that does not answer is not an error: it is
    /// retried without limit.
    pub fn start(access: Access, layout: Layout) -> Result<Self, AccessError> {
        access.check()?;
        let (to_providers, providers) = watch::channel(Arc::default());
        let (to_seen, seen) = watch::channel(Seen {
            endpoint: access.endpoint(0).to_owned(),
            connected: false,
            since: Instant::now(),
            problem: None,
            revision: 0,
            providers: 0,
            pages: 0,
        });
        let following = Following {
            end: range_end(&layout),
            begin: layout.providers().into_bytes(),
            access,
            core: Core::new(layout),
            pause: Pause::new(),
            providers: to_providers,
            seen: to_seen,
            passed_on: None,
            page: FIRST_PAGE,
        };
        let (stop, stopped) = oneshot::channel();
        let no_thread = |error| AccessError(format!("cannot start a thread to follow it: {error}"));
        let runtime = Builder::new_current_thread().enable_all().build();
        let runtime = runtime.map_err(no_thread)?;
        std::thread::Builder::new()
            .name("registry".to_owned())
            .spawn(move || {
                let seen = following.seen.clone();
                unless_it_fails(&seen, || following.run_until(stopped, runtime));
            })
            .map_err(no_thread)?;
        Ok(Follower {
            providers,
            seen,
            _stop: stop,
        })
    }

    /// Waits until the registry was read once; returns whether it was. The wait ends when etcd gives no part of it for
    /// `silence`, and after `most` in any case. Needs a tokio runtime with time.
    pub async fn first(&mut self, silence: Duration, most: Duration) -> bool {
        let mut seen = self.seen.clone();
        let read = async {
            loop {
                let pages = seen.borrow().pages;
                let more = seen.wait_for(|seen| seen.pages > pages);
                if !matches!(timeout(silence, more).await, Ok(Ok(_))) {
                    return;
                }
            }
        };
        let known = self.providers.wait_for(|providers| providers.version > 0);
        tokio::select! {
            known = known => known.is_ok(),
            _ = timeout(most, read) => false,
        }
    }

    /// The registry's content, as it changes.
    pub fn providers(&self) -> watch::Receiver<Arc<Providers>> {
        self.providers.clone()
    }

    /// The connection's state, as it changes.
    pub fn seen(&self) -> watch::Receiver<Seen> {
        self.seen.clone()
    }
}

struct Following {
    access: Access,
    /// The range of keys, from `begin` up to and without `end`.
    begin: Vec<u8>,
    end: Vec<u8>,
    core: Core,
    pause: Pause,
    providers: watch::Sender<Arc<Providers>>,
    seen: watch::Sender<Seen>,
    passed_on: Option<Instant>,
    /// Keys on the next page of the list.
    page: i64,
}

impl Following {
    fn run_until(self, stopped: oneshot::Receiver<Infallible>, runtime: Runtime) {
        runtime.block_on(async {
            tokio::select! {
                () = self.run() => {}
                _dropped = stopped => {}
            }
        });
        // Otherwise the drop would wait for a DNS lookup in progress.
        runtime.shutdown_background();
    }

    async fn run(mut self) {
        for attempt in 0.. {
            let endpoint = self.access.endpoint(attempt).to_owned();
            self.seen.send_modify(|seen| seen.endpoint = endpoint);
            let trouble = match self.access.connect(attempt).await {
                Ok(client) => self.session(&client).await,
                Err(trouble) => trouble,
            };
            self.core.lost();
            self.say_lost(&trouble);
            // Entries that the store has lost expire during the wait, too.
            let until_then = Instant::now() + self.pause.failed();
            loop {
                let due = [self.expire(), self.passes_on_at()];
                match due.into_iter().flatten().min() {
                    Some(due) if due < until_then => sleep_until(due.into()).await,
                    _ => break,
                }
            }
            sleep_until(until_then.into()).await;
        }
    }

    /// Lists and watches until a request fails.
    async fn session(&mut self, client: &Client) -> Trouble {
        let mut next = self.core.begin();
        loop {
            let done = match &next {
                Next::List { from, revision } => self.list(client, from.clone(), *revision).await,
                Next::Watch { revision } => self.watch(client, *revision).await,
            };
            next = match done {
                Ok(next) => next,
                Err(Trouble::Compacted) => self.core.begin(),
                Err(trouble) => return trouble,
            };
        }
    }

    /// Reads one page, with fewer keys when the answer is too large.
    async fn list(
        &mut self,
        client: &Client,
        from: Vec<u8>,
        revision: i64,
    ) -> Result<Next, Trouble> {
        let mut limit = match from == self.begin {
            true => FIRST_PAGE,
            false => self.page,
        };
        let mut kv = client
            .kv_client()
            .max_decoding_message_size(MAX_ANSWER_BYTES);
        let page = loop {
            let options = GetOptions::new()
                .with_range(self.end.clone())
                .with_revision(revision);
            let options = match limit {
                // Even one value is too large: read without it, so that it cannot block the list; the key is reported.
                0 => options.with_limit(1).with_keys_only(),
                _ => options.with_limit(limit),
            };
            let answer = timeout(ANSWER_WAIT, kv.get(from.clone(), Some(options))).await;
            match answer.map_err(|_| Trouble::late())?.map_err(Trouble::from) {
                Ok(answer) => break answer::page(answer)?,
                Err(Trouble::TooLarge) if limit > 0 => limit /= 8,
                Err(trouble) => return Err(trouble),
            }
        };
        self.page = following_page(limit, &page);
        let next = self.core.page(Instant::now(), page);
        self.seen.send_modify(|seen| seen.pages += 1);
        self.pass_on();
        Ok(next)
    }

    /// Takes changes until another list is due.
    async fn watch(&mut self, client: &Client, revision: i64) -> Result<Next, Trouble> {
        let options = WatchOptions::new()
            .with_prefix()
            .with_start_revision(revision)
            .with_progress_notify()
            .with_fragment();
        let mut watching = client
            .watch_client()
            .max_decoding_message_size(MAX_ANSWER_BYTES);
        let stream = timeout(
            ANSWER_WAIT,
            watching.watch(self.begin.clone(), Some(options)),
        )
        .await;
        let (mut questions, mut answers) = stream.map_err(|_| Trouble::late())??.split();
        let mut ask = interval(ASK_EVERY);
        ask.set_missed_tick_behavior(MissedTickBehavior::Delay);
        ask.reset();
        let mut unanswered = 0;
        loop {
            let expires = self.expire();
            let passes_on = self.passes_on_at();
            tokio::select! {
                answer = answers.message() => {
                    let ended = || Trouble::Away("the watch has ended".to_owned());
                    let answer = answer?.ok_or_else(ended)?;
                    unanswered = 0;
                    if answer.canceled() {
                        return answer::cancelled(&answer).map(|()| self.core.begin());
                    }
                    self.say_found();
                    let at = answer.header().map_or(0, |header| header.revision());
                    let changes: Vec<Change> = answer.events().iter().filter_map(answer::change).collect();
                    for some in changes.chunks(AT_A_TIME) {
                        if let Some(next) = self.core.changed(at, some.to_vec()) {
                            self.pass_on();
                            sleep(LIST_AGAIN).await;
                            return Ok(next);
                        }
                        yield_now().await;
                    }
                }
                _ = ask.tick() => {
                    if unanswered == MAX_UNANSWERED {
                        return Err(Trouble::Away("the watch has been silent".to_owned()));
                    }
                    unanswered += 1;
                    questions.request_progress().await?;
                }
                // The start of the loop does both.
                () = until(passes_on) => {}
                () = until(expires) => {}
            }
        }
    }

    /// When the next state will be passed on, if there is news.
    fn passes_on_at(&self) -> Option<Instant> {
        self.core.has_news().then(|| self.may_pass_on_at())
    }

    /// The earliest time to pass on the next state.
    fn may_pass_on_at(&self) -> Instant {
        let keys = u32::try_from(self.core.keys()).unwrap_or(u32::MAX);
        self.passed_on
            .map_or_else(Instant::now, |last| last + rest(keys))
    }

    fn expire(&mut self) -> Option<Instant> {
        let next = self.core.expire(Instant::now());
        self.pass_on();
        next
    }

    /// Passes on the state, if it has changed and it is time. If not, [`Following::passes_on_at`] says when.
    fn pass_on(&mut self) {
        if self.may_pass_on_at() > Instant::now() {
            return;
        }
        if let Some(providers) = self.core.providers() {
            self.passed_on = Some(Instant::now());
            let (count, revision) = (providers.count(), self.core.revision());
            self.seen.send_modify(|seen| {
                seen.providers = count;
                seen.revision = revision;
            });
            self.providers.send_replace(Arc::new(providers));
        }
    }

    fn say_found(&mut self) {
        let revision = self.core.revision();
        self.seen.send_modify(|seen| seen.revision = revision);
        if self.seen.borrow().connected {
            return;
        }
        self.pause.succeeded();
        self.seen.send_modify(|seen| {
            seen.connected = true;
            seen.since = Instant::now();
            seen.problem = None;
        });
        let seen = self.seen.borrow();
        tracing::info!(
            endpoint = seen.endpoint,
            providers = seen.providers,
            "the registry is followed"
        );
    }

    fn say_lost(&self, trouble: &Trouble) {
        let (was_connected, was_said) = {
            let seen = self.seen.borrow();
            (seen.connected, seen.problem.is_some())
        };
        self.seen.send_modify(|seen| {
            if std::mem::take(&mut seen.connected) {
                seen.since = Instant::now();
            }
            seen.problem = Some(trouble.to_string());
        });
        if was_connected || !was_said {
            tracing::warn!(
                endpoint = self.seen.borrow().endpoint,
                "the registry is not reached, its last known state stays in use: {trouble}"
            );
        }
    }
}

/// The time between two states of so many keys, wrong ones included.
fn rest(keys: u32) -> Duration {
    let gathering = REST_PER_KEY.saturating_mul(keys);
    let costs = COST_PER_KEY.saturating_mul(keys);
    let gathering = gathering.clamp(SHORTEST_REST, LONGEST_GATHERING);
    gathering.max(costs)
}

/// Follows the registry, and reports a panic: the known state stays in use, and the operator would not notice that no
/// changes arrive any more.
fn unless_it_fails(seen: &watch::Sender<Seen>, follow: impl FnOnce()) {
    // The panicked state is dropped; every state that was passed on is complete.
    if catch_unwind(AssertUnwindSafe(follow)).is_ok() {
        return;
    }
    let why = "an internal error of heddle ended it: restart heddle";
    tracing::error!("the registry is not followed any more, its last known state stays: {why}");
    seen.send_modify(|seen| {
        seen.connected = false;
        seen.since = Instant::now();
        seen.problem = Some(why.to_owned());
    });
}

/// How many keys are requested after a page for which there were so many.
fn following_page(limit: i64, page: &Page) -> i64 {
    let bytes = page.kvs.iter().map(|kv| kv.key.len() + kv.value.len());
    match bytes.sum::<usize>() < PAGE_BYTES / 2 {
        true => (limit.max(1) * 2).min(MAX_PAGE),
        false => limit.max(1),
    }
}

/// Sleeps until a moment; without one, for ever.
async fn until(moment: Option<Instant>) {
    match moment {
        Some(moment) => sleep_until(moment.into()).await,
        None => std::future::pending().await,
    }
}

/// The first key after all keys with the prefix, whose last byte is a slash.
fn range_end(layout: &Layout) -> Vec<u8> {
    let mut end = layout.providers().into_bytes();
    if let Some(last) = end.last_mut() {
        *last += 1;
    }
    end
}
