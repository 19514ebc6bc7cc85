//! The Workers of one class with their listeners, and the controllers that decide about them.
//!
//! Callers of each class have Workers of their own. An offline caller's work so has threads, sockets, pools and links of
//! its own, and a node's scheduler can tell it from what online callers wait for.

use std::cell::{Ref, RefCell, RefMut};
use std::net::TcpListener;
use std::rc::Rc;
use std::sync::Arc;
use std::time::{Duration, Instant};

use heddle_telemetry::Seldom;

use super::crew::Crew;
use super::elastic::{Controller, CrewChange, Shortage};
use super::entrance::Entrance;
use super::steal::Stealing;
use crate::door::Door;
use crate::intake::Intake;
use crate::settings::Elasticity;

/// How long a team without anything to do waits for a link for which it was started.
const LINGERS: Duration = Duration::from_secs(5);

pub(super) struct Team {
    crew: Rc<RefCell<Crew>>,
    pub(super) entrance: Entrance,
    controller: Controller,
    shortage: Shortage,
    stealing: Stealing,
    wanted: Elasticity,
    /// When a Worker was last wanted for a link.
    wanted_at: Option<Instant>,
    /// Limits how often failures to start a Worker are logged.
    cannot_start: Seldom,
}

impl Team {
    pub(super) fn new(crew: Crew, wanted: Elasticity) -> Self {
        let crew = Rc::new(RefCell::new(crew));
        Team {
            entrance: Entrance::new(Rc::clone(&crew)),
            crew,
            controller: Controller::new(wanted),
            shortage: Shortage::default(),
            stealing: Stealing::default(),
            wanted,
            wanted_at: None,
            cannot_start: Seldom::default(),
        }
    }

    pub(super) fn crew(&self) -> Ref<'_, Crew> {
        self.crew.borrow()
    }

    pub(super) fn crew_mut(&self) -> RefMut<'_, Crew> {
        self.crew.borrow_mut()
    }

    /// Accepts from a socket, by a Worker that is started if there is none.
    ///
    /// # Errors
    /// Returns the socket if there is no Worker, and none can be started.
    pub(super) fn adopt(
        &mut self,
        id: u64,
        socket: Arc<TcpListener>,
        door: Arc<Door>,
    ) -> Result<(), (Arc<TcpListener>, Arc<Door>)> {
        if self.crew().count() == 0 {
            self.grow(Instant::now());
            self.entrance.follow();
        }
        if self.crew().count() == 0 {
            return Err((socket, door));
        }
        self.entrance.adopt(id, socket, door);
        Ok(())
    }

    /// Starts a Worker if there is none, for a link that another node begins.
    pub(super) fn want(&mut self, now: Instant) {
        self.wanted_at = Some(now);
        if self.crew().count() == 0 {
            self.grow(now);
        }
    }

    /// Whether the team has nothing to do, and nothing is about to come.
    fn is_over(&self, now: Instant) -> bool {
        let since = self.wanted_at.map(|at| now.saturating_duration_since(at));
        self.entrance.is_empty()
            && self.crew().is_idle()
            && since.is_none_or(|since| since > LINGERS)
    }

    /// Measures the Workers, decides, and carries the decision out. A team without anything to do ends, and hands what
    /// comes late over to the Workers of `elsewhere`.
    pub(super) fn tick(&mut self, elapsed: Duration, now: Instant, elsewhere: &[Intake]) {
        if !elsewhere.is_empty() && self.is_over(now) {
            self.crew_mut().dissolve();
        }
        let mut crew = self.crew_mut();
        crew.tidy(elsewhere);
        crew.share();
        crew.observe(elapsed);
        if crew.count() > 0 {
            drop(crew);
            self.adapt(elapsed, now);
        } else {
            drop(crew);
        }
        self.entrance.follow();
    }

    fn adapt(&mut self, elapsed: Duration, now: Instant) {
        let crew = Rc::clone(&self.crew);
        let decision = self.controller.observe(elapsed, crew.borrow().busy());
        let busy_percent = percent(crew.borrow().mean_busy());
        match decision {
            CrewChange::Grow => {
                if let Some(worker) = self.grow(now) {
                    tracing::info!(
                        worker,
                        busy_percent,
                        grow_above_percent = percent(self.wanted.grow_above),
                        workers = crew.borrow().count(),
                        "a worker was added: the others are busy"
                    );
                }
            }
            CrewChange::Retire(index) => {
                let retired = crew.borrow_mut().retire(index);
                if let Some(worker) = retired {
                    tracing::info!(
                        worker,
                        busy_percent,
                        retire_below_percent = percent(self.wanted.retire_below),
                        workers = crew.borrow().count(),
                        "a worker retires: the others are enough, and take over its connections"
                    );
                }
            }
            CrewChange::Stay if self.wanted.steal => {
                let taking = self.stealing.observe(elapsed, crew.borrow().loads());
                if let Some(taking) = taking {
                    crew.borrow_mut().take(taking);
                }
            }
            CrewChange::Stay => {}
        }
        if self.shortage.observe(elapsed, self.controller.is_short()) {
            tracing::warn!(
                busy_percent,
                workers = crew.borrow().count(),
                "all workers are busy, and their limit is reached: see proxy.workers.max"
            );
        }
    }

    /// Adds a Worker, and returns its number.
    fn grow(&mut self, now: Instant) -> Option<usize> {
        let grown = self.crew.borrow_mut().grow();
        if let Err(error) = &grown
            && self.cannot_start.is_due(error, now)
        {
            tracing::error!(%error, "a worker cannot be started");
        }
        grown.ok()
    }
}

/// A ratio in whole percent, for log messages.
fn percent(ratio: f64) -> u32 {
    (ratio * 100.0).round() as u32
}
