//! What all tasks of a Worker's thread have, whatever they carry: its clock, its buffers, the gate that runs them, the
//! configuration, the numbers that it counts. What a Worker has of endpoints, links and clients is known above only.

mod alarm;
mod blocks;
mod gate;
mod heads;
mod moves;
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

use crate::balance::Random;
use crate::clock::{Clock, Millis, millis};
use crate::entry::Inbound;
use crate::failure::Reason;
use crate::intake::{Intake, Sessions};
use crate::pace::Pace;
use crate::peers::Peers;
use crate::permits::{Permit, Share};
use crate::route::Snapshot;
use crate::settings::{Bounds, Settings};

pub(crate) use alarm::{Alarm, Alarms, Rope, SWEEP_MS};
pub(crate) use blocks::Blocks;
pub(crate) use gate::{Band, BandMember, Gate, Part, Spent, TaskId, WorkKey};
pub(crate) use heads::fits_nodes;
pub use heads::{MAX_HEAD_BYTES, MAX_HEAD_FIELDS};
pub(crate) use moves::{Moves, Turn};
pub(crate) use outcome::Outcome;
pub(crate) use portion::Standing;
pub(crate) use trust::proof_holds;

/// Size of a wide block, in bytes.
const WIDE_BYTES: usize = 64 * 1024;
/// Blocks of a Worker at least, whatever its share: with fewer it could serve no connection.
const MIN_BLOCKS: usize = 16;
/// Idle buffer blocks kept through a sweep.
const KEEP_BLOCKS: usize = 64;
/// The same of wide blocks.
const KEEP_WIDE_BLOCKS: usize = 4;

/// The environment of a Worker's tasks.
pub(crate) struct Env {
    pub(crate) settings: Settings,
    /// What is taken of a head, of a client or an endpoint.
    own_limits: Limits,
    pub(crate) pool: Pool,
    /// Larger blocks, for bodies that fill the usual ones.
    pub(crate) wide_pool: Pool,
    pub(crate) clock: Clock,
    pub(crate) gate: Gate,
    pub(crate) alarms: Rc<Alarms>,
    pub(crate) stats: Arc<WorkerStats>,
    /// The newest configuration. A request under way keeps the one that it began with.
    snapshot: RefCell<Arc<Snapshot>>,
    /// The identities that this node can call as and be called as; `None` where there are no other nodes.
    identities: RefCell<Option<Arc<Identities>>>,
    /// Which Worker has which session with another node, and the way in to this one.
    pub(crate) sessions: Sessions,
    pub(crate) intake: Intake,
    /// What the links by which others call count to, of all Workers together.
    pub(crate) called_links: Arc<Share>,
    /// What is shown of other nodes.
    pub(crate) peers: Peers,
    pub(crate) pace: Pace,
    pub(crate) random: RefCell<Random>,
    pub(crate) moves: Moves,
    /// What was said of other nodes that were refused, by its number.
    pub(crate) refused: RefCell<Seldom<usize>>,
    /// What was said of links by which others call.
    pub(crate) said_of_links: RefCell<Seldom<&'static str>>,
    /// What was said of callers without an identity.
    pub(crate) no_identity: RefCell<Seldom<NoIdentity>>,
    /// When it was looked last whether a certificate has expired.
    expires_looked: Cell<Millis>,
    draining: Cell<bool>,
    /// The time for draining is over: a task whose alarm rings gives up.
    cutting: Cell<bool>,
}

/// What an environment is made from.
pub(crate) struct EnvParts {
    pub(crate) settings: Settings,
    pub(crate) stats: Arc<WorkerStats>,
    pub(crate) sessions: Sessions,
    pub(crate) intake: Intake,
    pub(crate) called_links: Arc<Share>,
    /// Of its random choices.
    pub(crate) seed: u64,
}

impl Env {
    pub(crate) fn new(parts: EnvParts) -> Self {
        let EnvParts {
            settings,
            stats,
            sessions,
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
            // As many bytes again.
            wide_pool: Pool::new(WIDE_BYTES, wide_blocks(blocks, block_bytes)),
            clock: Clock::new(Instant::now(), SystemTime::now()),
            gate: Gate::new(),
            alarms: Alarms::new(),
            stats,
            snapshot: RefCell::new(Arc::new(Snapshot::new(&heddle_model::Mesh::default()))),
            identities: RefCell::default(),
            sessions,
            intake,
            called_links,
            peers: Peers::default(),
            pace: Pace::default(),
            random: RefCell::new(Random::new(seed)),
            moves: Moves::default(),
            refused: RefCell::default(),
            said_of_links: RefCell::default(),
            no_identity: RefCell::default(),
            expires_looked: Cell::new(0),
            draining: Cell::new(false),
            cutting: Cell::new(false),
            settings,
        }
    }

    /// The configuration as it is now.
    pub(crate) fn snapshot(&self) -> Ref<'_, Arc<Snapshot>> {
        self.snapshot.borrow()
    }

    /// The configuration is this from now on.
    pub(crate) fn configure(&self, snapshot: Arc<Snapshot>) {
        // Dropped outside the borrow.
        drop(self.snapshot.replace(snapshot));
    }

    /// A permit for one more stream to the workload that it calls.
    ///
    /// # Errors
    /// When nothing is known of the mesh, or its share is spent, which is counted and said.
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

    /// Milliseconds from now, or never for a wait without limit.
    pub(crate) fn after(&self, wait: Duration) -> Millis {
        if wait.is_zero() {
            return Millis::MAX;
        }
        // The millisecond that has begun is not counted.
        self.clock
            .now_ms()
            .saturating_add(millis(wait))
            .saturating_add(1)
    }

    /// When a wait that began at `since`, here or on another Worker, has lasted for `wait`; never for a
    /// wait without limit.
    pub(crate) fn due(&self, since: Instant, wait: Duration) -> Millis {
        // Mostly it begins now.
        if wait.is_zero() || since == self.clock.now() {
            return self.after(wait);
        }
        let waited = self.clock.now().saturating_duration_since(since);
        let left = wait.saturating_sub(waited);
        match left.is_zero() {
            true => self.clock.now_ms(),
            // What both numbers are short of whole milliseconds would end the wait before its time, since it is
            // looked at whenever its connection moves.
            false => self
                .clock
                .now_ms()
                .saturating_add(millis(left))
                .saturating_add(2),
        }
    }

    /// What the task that runs is to do instead of waiting for its client: nothing, mostly.
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

    /// Connections are closed from now on as soon as they are between two requests.
    pub(crate) fn drain(&self) {
        self.draining.set(true);
        self.gate.wake_all();
    }

    /// Whether they are.
    pub(crate) fn is_draining(&self) -> bool {
        self.draining.get()
    }

    /// Requests are given up from now on, because the time for draining is over.
    pub(crate) fn cut(&self) {
        self.cutting.set(true);
    }

    /// Whether they are.
    pub(crate) fn is_cutting(&self) -> bool {
        self.cutting.get()
    }

    /// Whether this Worker is to end, as soon as what it carries allows.
    pub(crate) fn is_leaving(&self) -> bool {
        self.draining.get() || self.moves.is_retiring()
    }

    /// The same, by handing over what it carries to other Workers.
    pub(crate) fn is_retiring(&self) -> bool {
        self.moves.is_retiring()
    }

    /// Why a task gives up whose alarm has rung: what ran out, unless something else rang it.
    pub(crate) fn rang_for(&self, alarm: &Alarm, ran_out: Reason) -> Reason {
        if let Some(revoked) = alarm.take_revoked() {
            revoked
        } else if self.is_cutting() {
            Reason::Draining
        } else {
            ran_out
        }
    }

    /// One of this many Workers: each has its share of the blocks.
    pub(crate) fn share_blocks(&self, workers: usize) {
        let Bounds {
            block_bytes,
            blocks,
            ..
        } = self.settings.bounds;
        let least = MIN_BLOCKS.min(blocks);
        self.pool.set_max_blocks((blocks / workers).max(least));
        self.wide_pool
            .set_max_blocks(wide_blocks(blocks, block_bytes) / workers);
    }

    /// Gives back blocks that are not in use, and counts those that are.
    pub(crate) fn trim_blocks(&self) {
        self.pool.trim(KEEP_BLOCKS);
        self.wide_pool.trim(KEEP_WIDE_BLOCKS);
        self.stats.buffer_blocks_active.set(
            i64::try_from(self.pool.blocks_in_use() + self.wide_pool.blocks_in_use())
                .unwrap_or(i64::MAX),
        );
    }

    /// Whether there are more to give back.
    pub(crate) fn has_blocks_left(&self) -> bool {
        self.pool.blocks_free() > KEEP_BLOCKS || self.wide_pool.blocks_free() > KEEP_WIDE_BLOCKS
    }
}

/// Wide blocks that take as many bytes as so many usual ones.
fn wide_blocks(blocks: usize, block_bytes: usize) -> usize {
    blocks.saturating_mul(block_bytes) / WIDE_BYTES
}
