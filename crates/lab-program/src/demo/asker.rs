//! A program that sends the same request again and again: `heddle-lab ask`, started where the caller runs, on this
//! machine or in a pod. It knows only a URL, nothing of the mesh.
//!
//! It prints one line for each response. It runs until its standard input ends, because the process that started it
//! has ended or closed the pipe.

use std::io::{self, Read, Write};
use std::process::Stdio;
use std::sync::Arc;
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, bail};
use clap::Args;
use http_body_util::{BodyExt, Empty, Limited};
use hyper::body::Bytes;
use hyper::{Request, StatusCode, header};
use hyper_util::client::legacy::Client;
use hyper_util::client::legacy::connect::HttpConnector;
use hyper_util::rt::TokioExecutor;
use tokio::io::{AsyncBufReadExt, BufReader, Lines};
use tokio::process::{Child, ChildStdin, ChildStdout, Command};
use tokio::sync::watch;
use tokio::task::JoinSet;
use tokio::time::{MissedTickBehavior, interval_at, timeout};

use super::page::Page;

/// Timeout of a response.
pub(super) const ANSWER_LIMIT: Duration = Duration::from_secs(5);
/// Size limit of a response, in bytes.
const BODY_LIMIT: usize = 4 * 1024 * 1024;
/// Length limit of a printed line, in characters.
const LINE_LIMIT: usize = 200;

/// Send the same request again and again, and print each response
#[derive(Args)]
pub(crate) struct Ask {
    /// The URL of the request
    url: String,
    /// Requests per second; without it, one request is sent
    #[arg(long)]
    rate: Option<u32>,
    /// Limit of requests at the same time
    #[arg(long, default_value_t = 1)]
    callers: u32,
    /// Print the version of the page's reviews instead of the status
    #[arg(long)]
    pages: bool,
}

/// Sends requests until standard input ends.
///
/// # Errors Standard output was closed.
pub(crate) fn run(options: &Ask) -> anyhow::Result<()> {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .context("cannot start the runtime")?;
    runtime.block_on(ask_all(options))
}

async fn ask_all(options: &Ask) -> anyhow::Result<()> {
    let question = Arc::new(Question {
        client: Client::builder(TokioExecutor::new()).build_http(),
        url: options.url.clone(),
        pages: options.pages,
    });
    let Some(rate) = options.rate else {
        return say(&question.ask().await);
    };
    let enough = input_ended();
    let pace = Duration::from_secs(1) / rate.max(1);
    let mut tasks = JoinSet::new();
    for index in 0..options.callers.max(1) {
        let (question, mut enough) = (Arc::clone(&question), enough.clone());
        // The callers start one after the other, so that requests are spread evenly.
        let first = (Instant::now() + pace * index).into();
        let mut turns = interval_at(first, pace * options.callers.max(1));
        turns.set_missed_tick_behavior(MissedTickBehavior::Delay);
        tasks.spawn(async move {
            loop {
                tokio::select! {
                    _ = turns.tick() => say(&question.ask().await)?,
                    _ = enough.changed() => return anyhow::Ok(()),
                }
            }
        });
    }
    while let Some(ended) = tasks.join_next().await {
        ended.context("a task panicked")??;
    }
    Ok(())
}

/// Signals the end of standard input, which a thread of its own reads.
fn input_ended() -> watch::Receiver<()> {
    let (sender, receiver) = watch::channel(());
    thread::spawn(move || {
        let mut bytes = [0; 64];
        while matches!(io::stdin().read(&mut bytes), Ok(1..)) {}
        drop(sender);
    });
    receiver
}

fn say(answer: &str) -> anyhow::Result<()> {
    writeln!(io::stdout(), "{answer}").context("no process reads the answers")
}

struct Question {
    client: Client<HttpConnector, Empty<Bytes>>,
    url: String,
    pages: bool,
}

impl Question {
    /// The response in one line, or the error.
    async fn ask(&self) -> String {
        let answer = timeout(ANSWER_LIMIT, self.try_ask()).await;
        let answer = answer.unwrap_or_else(|_| bail!("no answer within {ANSWER_LIMIT:?}"));
        let answer = answer.unwrap_or_else(|error| format!("{error:#}"));
        let line = answer.split_whitespace().collect::<Vec<_>>().join(" ");
        line.chars().take(LINE_LIMIT).collect()
    }

    async fn try_ask(&self) -> anyhow::Result<String> {
        let request = Request::get(&self.url)
            .header(header::ACCEPT, "application/json")
            .body(Empty::new())?;
        let response = self.client.request(request).await?;
        let status = response.status();
        let reason = response.headers().get("heddle-reason");
        let reason = reason.and_then(|reason| reason.to_str().ok());
        let answer = match reason {
            Some(reason) => format!("{} {reason}", status.as_u16()),
            None => status.as_u16().to_string(),
        };
        // Read to the end, so that the connection can be reused.
        let body = Limited::new(response.into_body(), BODY_LIMIT).collect();
        let body = body.await;
        let body = body.map_err(|error| anyhow::anyhow!("the answer broke off: {error}"))?;
        if !self.pages {
            return Ok(answer);
        }
        let body = body.to_bytes();
        if status != StatusCode::OK {
            bail!("{answer}: {}", String::from_utf8_lossy(&body));
        }
        Page::read(&body)
    }
}

/// A running `heddle-lab ask`; ended when dropped.
pub(super) struct Asker {
    child: Child,
    input: Option<ChildStdin>,
    answers: Lines<BufReader<ChildStdout>>,
}

impl Asker {
    /// Starts it. `program` is `heddle-lab` as run by the caller.
    ///
    /// # Errors
    /// It cannot be started.
    pub(super) fn start(
        mut program: std::process::Command,
        url: &str,
        more: &[String],
    ) -> anyhow::Result<Self> {
        program.arg("ask").arg(url).args(more);
        let mut child = Command::from(program)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            // In a process group of its own, so Ctrl-C reaches only the demo; this program stops when its input ends.
            .process_group(0)
            .kill_on_drop(true)
            .spawn()
            .context("cannot start heddle-lab ask")?;
        let output = child.stdout.take().context("its output is a pipe")?;
        Ok(Self {
            input: child.stdin.take(),
            child,
            answers: BufReader::new(output).lines(),
        })
    }

    /// The next response; `None` after the program has ended.
    pub(super) async fn next(&mut self) -> Option<String> {
        self.answers.next_line().await.ok().flatten()
    }

    /// Closes its input: it ends after its pending requests. Their responses are still to be read.
    pub(super) fn enough(&mut self) {
        self.input = None;
    }

    pub(super) async fn ended(&mut self) {
        let _status = self.child.wait().await;
    }
}
