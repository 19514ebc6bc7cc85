//! `heddle-lab grpc-load`: calls over connections of HTTP/2, a fixed number of them at a time on each; every answer is
//! checked.
//!
//! Load is offered as by the generator for HTTP/1.1: in a closed loop or at a fixed rate, and latency counts from when
//! a call was due. Each place, which has one call at a time, is a task that waits until its next call is due.

use std::cell::{Cell, RefCell};
use std::future::{Future, poll_fn};
use std::io::Write;
use std::num::NonZeroU64;
use std::rc::Rc;
use std::sync::{Arc, mpsc};
use std::task::{Poll, Waker};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::Context;
use bytes::Bytes;
use clap::Args;
use h2::client::SendRequest;
use tokio::net::TcpStream;
use tokio::sync::Notify;
use tokio::task::LocalSet;

use super::call::{self, Calls};
use super::calling;
use crate::handshakes::wait_until;
use crate::load::{Outcome, Pace, Schedule, Tally, Target, WindowEdge, edge};

/// Options of `heddle-lab grpc-load`.
#[derive(Args, Clone)]
pub struct GrpcLoad {
    /// `AUTHORITY@ADDRESS:PORT` to send to; connections take these in turn.
    #[arg(long = "target", required = true)]
    pub(super) targets: Vec<Target>,
    /// Connections.
    #[arg(long, default_value_t = 8, value_parser = clap::value_parser!(u32).range(1..=1_000))]
    pub(super) connections: u32,
    /// Calls at a time on each.
    #[arg(long, default_value_t = 16, value_parser = clap::value_parser!(u32).range(1..=100))]
    pub(super) streams: u32,
    /// Bytes of the message, both ways.
    #[arg(long, default_value_t = 64, value_parser = clap::value_parser!(u64).range(1..=call::MAX_MESSAGE))]
    pub(super) body_bytes: u64,
    #[command(flatten)]
    pub(super) pace: Pace,
}

/// Runs the load and prints the outcome as one line of JSON.
///
/// # Errors
/// When a connection cannot be opened, or too many calls fail.
pub fn run(options: &GrpcLoad) -> anyhow::Result<()> {
    // The kernel may otherwise fire timers 50 µs late, which the latencies would show.
    rustix::thread::set_current_timer_slack(NonZeroU64::new(1))?;
    let mut line = serde_json::to_vec(&offer(options)?)?;
    line.push(b'\n');
    std::io::stdout().write_all(&line).context("stdout")
}

/// Runs the load.
///
/// # Errors
/// When a connection cannot be opened, or too many calls fail.
pub(super) fn offer(options: &GrpcLoad) -> anyhow::Result<Outcome> {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()?;
    let tasks = LocalSet::new();
    let places = Rc::new(Places::new(options)?);
    let measured = tasks.block_on(&runtime, measure(options, &places));
    // Once the tasks have ended with their runtime, `places` has no other owner.
    drop(tasks);
    let (start, end) = measured?;
    let places = Rc::into_inner(places).context("a task outlives its runtime")?;
    let schedule = places.schedule.into_inner();
    let tally = places.tally.into_inner();
    tally.outcome(&start, &end, &options.pace.watched, schedule.as_ref())
}

/// Offers the load until it is over; returns the readings at both edges of the window.
async fn measure(
    options: &GrpcLoad,
    places: &Rc<Places>,
) -> anyhow::Result<(WindowEdge, WindowEdge)> {
    for connection in 0..options.connections as usize {
        let target = &options.targets[connection % options.targets.len()];
        let sender = connect(target)
            .await
            .with_context(|| format!("cannot connect to {}", target.address))?;
        for stream in 0..options.streams as usize {
            let index = connection * options.streams as usize + stream;
            let calls = Calls::new(&target.authority, options.body_bytes, index as u64)?;
            tokio::task::spawn_local(Rc::clone(places).serve(index, sender.clone(), calls));
        }
    }
    let pace = &options.pace;
    places.start(Instant::now());
    if pace.rate.is_some() {
        tokio::task::spawn_local(Rc::clone(places).arrivals(Timer::start()));
    }
    let start = if pace.requests.is_some() {
        let start = edge(&pace.watched)?;
        places.over.notified().await;
        start
    } else {
        places.until(pace.warm_up).await;
        places.tally.borrow_mut().begin_window();
        let start = edge(&pace.watched)?;
        places.until(pace.seconds).await;
        start
    };
    let end = edge(&pace.watched)?;
    places.tally.borrow().check()?;
    Ok((start, end))
}

async fn connect(target: &Target) -> anyhow::Result<SendRequest<Bytes>> {
    let stream = TcpStream::connect(target.address).await?;
    stream.set_nodelay(true)?;
    let (sender, connection) = calling().handshake(stream).await?;
    tokio::task::spawn_local(async move {
        // Its calls fail and are counted; this line says why.
        if let Err(error) = connection.await {
            eprintln!("a connection broke: {error}");
        }
    });
    Ok(sender)
}

/// The places, which have one call at a time each, and the results so far.
struct Places {
    /// When the call of each place is due, until it has begun.
    due: Vec<Cell<Option<Instant>>>,
    /// The tasks of the places without a call.
    idle: Vec<Cell<Option<Waker>>>,
    schedule: RefCell<Option<Schedule>>,
    tally: RefCell<Tally>,
    /// Calls still to be begun, when the run is bounded by their number.
    budget: Cell<Option<u64>>,
    in_flight: Cell<usize>,
    /// Notified when the budget is used and every answer has come, or when too many calls have failed.
    over: Notify,
}

impl Places {
    fn new(options: &GrpcLoad) -> anyhow::Result<Places> {
        let count = (options.connections * options.streams) as usize;
        let pace = &options.pace;
        let schedule = pace
            .rate
            .map(|rate| Schedule::new(rate, 0..count, pace.seed));
        Ok(Places {
            due: (0..count).map(|_| Cell::new(None)).collect(),
            idle: (0..count).map(|_| Cell::new(None)).collect(),
            schedule: RefCell::new(schedule),
            tally: RefCell::new(Tally::new()?),
            budget: Cell::new(pace.requests),
            in_flight: Cell::new(0),
            over: Notify::new(),
        })
    }

    fn start(&self, now: Instant) {
        if let Some(schedule) = &mut *self.schedule.borrow_mut() {
            return schedule.start(now);
        }
        for index in 0..self.due.len() {
            self.begin(index, now);
        }
    }

    /// Makes the calls of one place, one after another.
    async fn serve(
        self: Rc<Places>,
        index: usize,
        mut sender: SendRequest<Bytes>,
        mut calls: Calls,
    ) {
        loop {
            let due = self.next(index).await;
            match make(&mut sender, &mut calls).await {
                Ok(()) => self.tally.borrow_mut().answered(due),
                Err(failure) => self.failed(failure),
            }
            self.ended(index);
        }
    }

    /// Ready when the next call of a place is due, with that time.
    fn next(&self, index: usize) -> impl Future<Output = Instant> {
        poll_fn(move |cx| match self.due[index].take() {
            Some(due) => Poll::Ready(due),
            None => {
                self.idle[index].set(Some(cx.waker().clone()));
                Poll::Pending
            }
        })
    }

    fn failed(&self, failure: &'static str) {
        let tally = &mut *self.tally.borrow_mut();
        tally.failed(failure);
        if tally.check().is_err() {
            self.over.notify_one();
        }
    }

    fn ended(&self, index: usize) {
        self.in_flight.set(self.in_flight.get() - 1);
        let scheduled = match &mut *self.schedule.borrow_mut() {
            Some(schedule) => {
                schedule.freed(index);
                true
            }
            None => false,
        };
        match scheduled {
            true => drop(self.begin_due()),
            false => self.begin(index, Instant::now()),
        }
        if self.budget.get() == Some(0) && self.in_flight.get() == 0 {
            self.over.notify_one();
        }
    }

    /// Lets a place begin its call, if the budget allows another.
    fn begin(&self, index: usize, due: Instant) {
        match self.budget.get() {
            Some(0) => return,
            Some(left) => self.budget.set(Some(left - 1)),
            None => {}
        }
        self.in_flight.set(self.in_flight.get() + 1);
        self.due[index].set(Some(due));
        if let Some(task) = self.idle[index].take() {
            task.wake();
        }
    }

    /// Begins the calls that are due in places that are free; returns when to look again.
    fn begin_due(&self) -> Option<Instant> {
        let mut schedule = self.schedule.borrow_mut();
        let schedule = schedule.as_mut()?;
        let now = Instant::now();
        while let Some((index, due)) = schedule.next_due(now) {
            self.begin(index, due);
        }
        schedule.wakes()
    }

    /// Begins calls when they are due, until the runtime ends.
    async fn arrivals(self: Rc<Places>, timer: Timer) {
        while let Some(next) = self.begin_due() {
            timer.sleep_until(next).await;
        }
    }

    /// Waits for `seconds`, or until too many calls have failed.
    async fn until(&self, seconds: f64) {
        let over = self.over.notified();
        // The timeout is the normal end.
        let _over = tokio::time::timeout(Duration::from_secs_f64(seconds), over).await;
    }
}

/// Makes one call and checks all of its answer.
async fn make(sender: &mut SendRequest<Bytes>, calls: &mut Calls) -> Result<(), &'static str> {
    poll_fn(|cx| sender.poll_ready(cx))
        .await
        .map_err(|_| "connection broke")?;
    let (answer, mut stream) = sender
        .send_request(calls.next(), false)
        .map_err(|_| "not sent")?;
    stream
        .send_data(calls.message.clone(), true)
        .map_err(|_| "not sent")?;
    let answer = answer.await.map_err(|_| "reset before the head")?;
    if !call::is_answer(&answer) {
        return Err("wrong head");
    }
    let mut body = answer.into_body();
    let mut missing = &calls.message[..];
    while let Some(part) = body.data().await {
        let part = part.map_err(|_| "reset within the message")?;
        missing = missing.strip_prefix(&part[..]).ok_or("wrong message")?;
        body.flow_control()
            .release_capacity(part.len())
            .map_err(|_| "flow control")?;
    }
    if !missing.is_empty() {
        return Err("message cut short");
    }
    match body.trailers().await {
        Ok(Some(trailers)) if call::is_ok(&trailers) => Ok(()),
        Ok(Some(_)) => Err("wrong status of gRPC"),
        Ok(None) => Err("no trailers"),
        Err(_) => Err("reset within the trailers"),
    }
}

/// Wakes a task on time, by a thread that sleeps: the runtime's own timers count in milliseconds.
struct Timer {
    asked: mpsc::SyncSender<Instant>,
    rings: Arc<Notify>,
}

impl Timer {
    fn start() -> Timer {
        // There is one wait at a time.
        let (asked, due) = mpsc::sync_channel(1);
        let rings = Arc::new(Notify::new());
        let ring = Arc::clone(&rings);
        thread::spawn(move || {
            // A thread inherits the timer slack of the one that started it.
            while let Ok(due) = due.recv() {
                wait_until(due);
                ring.notify_one();
            }
        });
        Timer { asked, rings }
    }

    async fn sleep_until(&self, due: Instant) {
        if due > Instant::now() && self.asked.send(due).is_ok() {
            self.rings.notified().await;
        }
    }
}
