//! A program that asks a service the same thing again and again: `heddle-lab ask`, which is started where the
//! caller is, on this machine or in a pod. It knows a URL, and nothing of a mesh.
//!
//! Every answer is a line of its output. It goes on until its input ends: then the process that started it is
//! gone or has had enough.

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

/// How long an answer may take.
pub(super) const ANSWER_LIMIT: Duration = Duration::from_secs(5);
/// The longest answer that is read, in bytes.
const BODY_LIMIT: usize = 4 * 1024 * 1024;
/// Longest line that says why there was no answer, in characters.
const LINE_LIMIT: usize = 200;

/// Ask a service the same thing again and again, and print what it answers.
#[derive(Args)]
pub(crate) struct Ask {
    /// What to ask for
    url: String,
    /// How often, per second; once if it is not given
    #[arg(long)]
    rate: Option<u32>,
    /// How many may wait for an answer at the same time
    #[arg(long, default_value_t = 1)]
    callers: u32,
    /// Print which reviews are on the page, not the status
    #[arg(long)]
    pages: bool,
}

/// Asks until the input ends.
///
/// # Errors
/// The output is gone.
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
        // Their turns are spread evenly, so that one asks after the other.
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

/// Tells when there is no more input, which is read by a thread that waits for nothing else.
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
    /// The answer, or why there is none, in one line.
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
        // Read to its end, so that the connection is used again.
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

/// Such a program, as it is started; ends when dropped.
pub(super) struct Asker {
    child: Child,
    input: Option<ChildStdin>,
    answers: Lines<BufReader<ChildStdout>>,
}

impl Asker {
    /// Starts it. `program` is `heddle-lab`, where the caller is.
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
            // Ctrl-C is for the demo alone: who asks is told by the end of its input.
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

    /// The next answer; none when it has ended.
    pub(super) async fn next(&mut self) -> Option<String> {
        self.answers.next_line().await.ok().flatten()
    }

    /// Has it end when the requests under way have their answers, which are still to be taken.
    pub(super) fn enough(&mut self) {
        self.input = None;
    }

    /// Waits until it has ended.
    pub(super) async fn ended(&mut self) {
        let _status = self.child.wait().await;
    }
}
