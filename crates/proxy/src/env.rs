//! Everything that all tasks of a Worker's thread share: the clock, the buffers, the gate that runs them, the
//! configuration, the metrics. The Worker's endpoints, links and clients belong to the modules above.

mod alarm;
mod asking;
mod blocks;
mod gate;
mod heads;
mod moves;
mod offline;
mod outcome;
pub(crate) mod portion;
mod trust;

use std::cell::{Cell, Ref, RefCell};
use std::rc::Rc;
use std::sync::Arc;
use std::time::{Duration, Instant, SystemTime};

use heddle_telemetry::{Seldom, WorkerStats};
use heddle_transport::{Identities, NoIdentity};
use heddle_wire::buffer::Pool;
use heddle_wire::http1::Limits;

use crate::accesses::Accesses;
use crate::balance::Random;
use crate::clock::{Clock, Millis, millis};
use crate::entry::Inbound;
use crate::failure::Reason;
use crate::intake::{Intake, OfflineWorkers, Sessions};
use crate::pace::Pace;
use crate::peers::Peers;
use crate::permits::{Permit, Share};
use crate::route::Snapshot;
use crate::settings::{Bounds, LimitShare, Settings};

pub(crate) use alarm::{Alarm, Alarms, Rope, SWEEP_MS};
pub(crate) use asking::{Asking, PendingQuestion};
pub(crate) use blocks::Blocks;
pub(crate) use gate::{Band, BandMember, Gate, Part, Spent, TaskId, Used, WorkKey, thread_cpu_ns};
pub(crate) use heads::fits_nodes;
pub use heads::{MAX_HEAD_BYTES, MAX_HEAD_FIELDS};
pub(crate) use moves::{Moves, Turn};
pub(crate) use outcome::Outcome;
pub(crate) use portion::Standing;
pub(crate) use trust::proof_holds;

/// Size of a wide block, in bytes.
const WIDE_BYTES: usize = 64 * 1024;
/// Minimum number of blocks of a Worker: with fewer it could not serve any connection.
const MIN_BLOCKS: usize = 16;
/// Free buffer blocks that a sweep keeps.
const KEEP_BLOCKS: usize = 64;
/// Free wide blocks that a sweep keeps.
const KEEP_WIDE_BLOCKS: usize = 4;

/// The environment of a Worker's tasks.
pub(crate) struct Env {
    pub(crate) settings: Settings,
    /// Limits of a head from a client or a local endpoint.
    own_limits: Limits,
    pub(crate) pool: Pool,
    /// Larger blocks, for bodies that fill the normal ones.
    pub(crate) wide_pool: Pool,
    pub(crate) clock: Clock,
    pub(crate) gate: Gate,
    pub(crate) alarms: Rc<Alarms>,
    pub(crate) stats: Arc<WorkerStats>,
    /// The newest configuration. A request under way keeps the one with which it began.
    snapshot: RefCell<Arc<Snapshot>>,
    /// The identities that this node uses to call and to be called; `None` without other nodes.
    identities: RefCell<Option<Arc<Identities>>>,
    /// Finds the Worker that has a link session.
    pub(crate) sessions: Sessions,
    /// The Workers for offline callers.
    pub(crate) offline_workers: OfflineWorkers,
    pub(crate) intake: Intake,
    /// The share to which links and HTTP/2 connections from other nodes count, of all Workers together.
    pub(crate) called_links: Arc<Share>,
    /// The state of other nodes, for status reports.
    pub(crate) peers: Peers,
    pub(crate) accesses: Accesses,
    pub(crate) pace: Pace,
    pub(crate) random: RefCell<Random>,
    pub(crate) moves: Moves,
    /// What this Worker's callers ask.
    pub(crate) asking: Asking,
    /// Limits log messages about refused nodes, by the index of the refusal.
    pub(crate) refused: RefCell<Seldom<usize>>,
    /// Limits log messages about links from other nodes.
    pub(crate) said_of_links: RefCell<Seldom<&'static str>>,
    /// Limits log messages about callers without an identity.
    pub(crate) no_identity: RefCell<Seldom<NoIdentity>>,
    /// Time of the last check for expired certificates.
    expires_looked: Cell<Millis>,
    draining: Cell<bool>,
    /// The drain deadline has passed: a task whose alarm rings gives up.
    cutting: Cell<bool>,
}

/// The parameters of [`Env::new`].
pub(crate) struct EnvParts {
    pub(crate) settings: Settings,
    pub(crate) stats: Arc<WorkerStats>,
    pub(crate) sessions: Sessions,
    pub(crate) offline_workers: OfflineWorkers,
    pub(crate) intake: Intake,
    pub(crate) called_links: Arc<Share>,
    /// Seed of the random number generator.
    pub(crate) seed: u64,
}

impl Env {
    pub(crate) fn new(parts: EnvParts) -> Self {
        let EnvParts {
            settings,
            stats,
            sessions,
            offline_workers,
            intake,
            called_links,
            seed,
        } = parts;
        let Bounds {
            block_bytes,
            blocks,
            ..
        } = settings.bounds;
        Env {
            own_limits: heads::own_limits(&settings.bounds),
            pool: Pool::new(block_bytes, blocks),
            // As many bytes as the normal blocks.
            wide_pool: Pool::new(WIDE_BYTES, wide_blocks(blocks, block_bytes)),
            clock: Clock::new(Instant::now(), SystemTime::now()),
            gate: Gate::new(),
            alarms: Alarms::new(),
            stats,
            snapshot: RefCell::new(Arc::new(Snapshot::new(&heddle_model::Mesh::default()))),
            identities: RefCell::default(),
            sessions,
            offline_workers,
            intake,
            called_links,
            peers: Peers::default(),
            accesses: Accesses::default(),
            pace: Pace::default(),
            random: RefCell::new(Random::new(seed)),
            moves: Moves::default(),
            asking: Asking::new(),
            refused: RefCell::default(),
            said_of_links: RefCell::default(),
            no_identity: RefCell::default(),
            expires_looked: Cell::new(0),
            draining: Cell::new(false),
            cutting: Cell::new(false),
            settings,
        }
    }

    /// The current configuration.
    pub(crate) fn snapshot(&self) -> Ref<'_, Arc<Snapshot>> {
        self.snapshot.borrow()
    }

    /// Replaces the configuration.
    pub(crate) fn configure(&self, snapshot: Arc<Snapshot>) {
        // Dropped outside the borrow.
        drop(self.snapshot.replace(snapshot));
    }

    /// Takes a permit for a stream, from the share of the workload that it calls.
    ///
    /// # Errors
    /// When there is no configuration yet, or the share is used up, which is counted and logged.
    pub(crate) fn permit(&self, inbound: &Inbound) -> Result<Permit, Reason> {
        let snapshot = self.snapshot();
        let (service, port, endpoint) = (&inbound.service, inbound.port, inbound.endpoint);
        let share = snapshot.called(service, port, endpoint);
        let share = share.ok_or(Reason::EndpointGone)?;
        share.take().map_err(|_| {
            self.stats.connections_refused.inc();
            self.stats.connections_over_share.inc();
            share.say_spent(self.clock.now());
            Reason::UpstreamOverflow
        })
    }

    /// The time at which a wait of this length ends; `Millis::MAX` for 0, which means no limit.
    pub(crate) fn after(&self, wait: Duration) -> Millis {
        if wait.is_zero() {
            return Millis::MAX;
        }
        // The current millisecond is not counted, so that the wait is not too short.
        self.clock
            .now_ms()
            .saturating_add(millis(wait))
            .saturating_add(1)
    }

    /// The time at which a wait that began at `since`, here or on another Worker, ends; `Millis::MAX` for 0, which
    /// means no limit.
    pub(crate) fn due(&self, since: Instant, wait: Duration) -> Millis {
        // Mostly the wait begins now.
        if wait.is_zero() || since == self.clock.now() {
            return self.after(wait);
        }
        let waited = self.clock.now().saturating_duration_since(since);
        let left = wait.saturating_sub(waited);
        match left.is_zero() {
            true => self.clock.now_ms(),
            // Both numbers are rounded down to milliseconds, which would end the wait too early, since it is checked
            // whenever the connection moves.
            false => self
                .clock
                .now_ms()
                .saturating_add(millis(left))
                .saturating_add(2),
        }
    }

    /// What the running task is to do instead of waiting for its client; mostly nothing.
    pub(crate) fn turn(&self) -> Option<Turn> {
        if !self.moves.are_wanted() && !self.draining.get() {
            return None;
        }
        if self.draining.get() {
            return Some(Turn::End);
        }
        let order = self.moves.take(self.gate.current()?)?;
        Some(Turn::Leave(order))
    }

    /// Begins to drain: connections are closed as soon as they are between two requests.
    pub(crate) fn drain(&self) {
        self.draining.set(true);
        self.gate.wake_all();
    }

    pub(crate) fn is_draining(&self) -> bool {
        self.draining.get()
    }

    /// Ends the drain: from now on, a request is given up when its alarm rings.
    pub(crate) fn cut(&self) {
        self.cutting.set(true);
    }

    /// Whether the drain deadline has passed.
    pub(crate) fn is_cutting(&self) -> bool {
        self.cutting.get()
    }

    /// Whether this Worker is to end as soon as its connections allow it.
    pub(crate) fn is_leaving(&self) -> bool {
        self.draining.get() || self.moves.is_retiring()
    }

    /// Whether this Worker is to end by moving its connections to other Workers.
    pub(crate) fn is_retiring(&self) -> bool {
        self.moves.is_retiring()
    }

    /// Why a task whose alarm has rung gives up: `ran_out`, unless the alarm rang for another reason.
    pub(crate) fn rang_for(&self, alarm: &Alarm, ran_out: Reason) -> Reason {
        if let Some(revoked) = alarm.take_revoked() {
            revoked
        } else if self.is_cutting() {
            Reason::Draining
        } else {
            ran_out
        }
    }

    /// Sets this Worker's share of the blocks.
    pub(crate) fn share_blocks(&self, limits: LimitShare) {
        let Bounds {
            block_bytes,
            blocks,
            ..
        } = self.settings.bounds;
        let least = MIN_BLOCKS.min(blocks);
        self.pool.set_max_blocks(limits.at_most(blocks).max(least));
        let wide = limits.at_most(wide_blocks(blocks, block_bytes));
        self.wide_pool.set_max_blocks(wide);
    }

    /// Frees surplus blocks, and updates the metric of blocks in use.
    pub(crate) fn trim_blocks(&self) {
        self.pool.trim(KEEP_BLOCKS);
        self.wide_pool.trim(KEEP_WIDE_BLOCKS);
        self.stats.buffer_blocks_active.set(
            i64::try_from(self.pool.blocks_in_use() + self.wide_pool.blocks_in_use())
                .unwrap_or(i64::MAX),
        );
    }

    /// Whether [`Self::trim_blocks`] would free blocks.
    pub(crate) fn has_blocks_left(&self) -> bool {
        self.pool.blocks_free() > KEEP_BLOCKS || self.wide_pool.blocks_free() > KEEP_WIDE_BLOCKS
    }
}

/// The number of wide blocks that take as many bytes as `blocks` blocks of `block_bytes` each.
fn wide_blocks(blocks: usize, block_bytes: usize) -> usize {
    blocks.saturating_mul(block_bytes) / WIDE_BYTES
}
