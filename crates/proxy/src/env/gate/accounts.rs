//! Accounts of run time: the owner of each task, and the time that each owner has used.

use std::collections::HashMap;
use std::sync::Arc;

use foldhash::fast::RandomState;

/// Identifies the account to which work is charged. A key is never reused for another account of the Worker.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct WorkKey {
    row: u32,
    serial: u32,
}

impl WorkKey {
    /// The Worker's own work, such as accept loops and the mailbox.
    pub(crate) const OWN: WorkKey = WorkKey { row: 0, serial: 0 };

    /// The account's place among those that are open. Others had it before, and will.
    pub(super) fn row(self) -> usize {
        self.row as usize
    }

    /// The account's unique number.
    pub(crate) fn serial(self) -> u32 {
        self.serial
    }

    #[cfg(test)]
    pub(crate) fn of(serial: u32) -> WorkKey {
        WorkKey { row: 0, serial }
    }
}

/// Number of accounts up to which unused ones are kept: their callers are part of the configuration, and will mostly
/// call again.
const KEPT: usize = 256;

/// The accounts of a gate. Row 0 is [`WorkKey::OWN`].
#[derive(Debug)]
pub(super) struct Accounts {
    rows: Vec<Option<Row>>,
    by_owner: HashMap<Arc<str>, WorkKey, RandomState>,
    free: Vec<u32>,
    /// Number of accounts that were ever opened.
    opened: u32,
}

#[derive(Debug)]
struct Row {
    owner: Arc<str>,
    serial: u32,
    /// Time by the clock.
    spent_ns: u64,
    /// `spent_ns` at the last call of [`Accounts::settle`].
    settled_ns: u64,
    /// Processor time up to then.
    cpu_ns: u64,
    /// `spent_ns` at the last call of [`Accounts::forget_unused`].
    looked_at_ns: u64,
}

impl Row {
    fn new(owner: Arc<str>, serial: u32) -> Self {
        Row {
            owner,
            serial,
            spent_ns: 0,
            settled_ns: 0,
            cpu_ns: 0,
            looked_at_ns: 0,
        }
    }
}

impl Accounts {
    pub(super) fn new() -> Self {
        Accounts {
            rows: vec![Some(Row::new("heddle".into(), 0))],
            by_owner: HashMap::default(),
            free: Vec::new(),
            opened: 0,
        }
    }

    /// The account of `owner`, opened if it does not exist yet.
    pub(super) fn open(&mut self, owner: &Arc<str>) -> WorkKey {
        if let Some(key) = self.by_owner.get(owner) {
            return *key;
        }
        self.opened = self.opened.wrapping_add(1);
        let serial = self.opened;
        let opened = Some(Row::new(Arc::clone(owner), serial));
        let row = match self.free.pop() {
            Some(row) => {
                self.rows[row as usize] = opened;
                row
            }
            None => {
                self.rows.push(opened);
                // Far fewer than 2^32 rows exist: each account has a connection, or recently had one.
                u32::try_from(self.rows.len() - 1).unwrap_or(0)
            }
        };
        let key = WorkKey { row, serial };
        self.by_owner.insert(Arc::clone(owner), key);
        key
    }

    /// The owner of an account, if the account is still open.
    pub(super) fn owner(&self, key: WorkKey) -> Option<&Arc<str>> {
        let row = self.rows.get(key.row as usize)?.as_ref()?;
        (row.serial == key.serial).then_some(&row.owner)
    }

    /// All open accounts of callers.
    pub(super) fn open_ones(&self) -> impl Iterator<Item = (&Arc<str>, WorkKey)> {
        self.by_owner.iter().map(|(owner, key)| (owner, *key))
    }

    #[inline]
    pub(super) fn charge(&mut self, key: WorkKey, spent_ns: u64) {
        if let Some(Some(row)) = self.rows.get_mut(key.row as usize) {
            row.spent_ns += spent_ns;
        }
    }

    /// Divides the processor time of the thread since the last call, in nanoseconds, in proportion to the time by the
    /// clock that each account was charged with since then. If none was, it is [`WorkKey::OWN`]'s. Calls `charge` with
    /// each account and its part.
    pub(super) fn settle(&mut self, ran_ns: u64, mut charge: impl FnMut(WorkKey, &Arc<str>, u64)) {
        let rows = self.rows.iter().flatten();
        let spent: u64 = rows.map(|row| row.spent_ns - row.settled_ns).sum();
        let mut own_ns = ran_ns;
        // The own account comes last, and gets what rounding has left.
        for (number, row) in self.rows.iter_mut().enumerate().rev() {
            let Some(row) = row else { continue };
            let wall = row.spent_ns - row.settled_ns;
            row.settled_ns = row.spent_ns;
            let part = u128::from(wall) * u128::from(ran_ns) / u128::from(spent.max(1));
            let ns = match number {
                0 => own_ns,
                // At most `ran_ns`.
                _ => u64::try_from(part).unwrap_or(u64::MAX),
            };
            own_ns -= ns;
            row.cpu_ns += ns;
            if ns > 0 {
                let key = WorkKey {
                    // As in `open`.
                    row: u32::try_from(number).unwrap_or(0),
                    serial: row.serial,
                };
                charge(key, &row.owner, ns);
            }
        }
    }

    /// The owners, and the processor time that each has used, in nanoseconds.
    pub(super) fn costs(&self) -> impl Iterator<Item = (&Arc<str>, u64)> {
        let rows = self.rows.iter().flatten();
        rows.map(|row| (&row.owner, row.cpu_ns))
    }

    /// Whether enough accounts exist for [`Accounts::forget_unused`] to be worth a scan of all tasks.
    pub(super) fn are_many(&self) -> bool {
        self.by_owner.len() > KEPT
    }

    /// Closes accounts that have no task and have used no time since the last call.
    pub(super) fn forget_unused(&mut self, in_use: impl Iterator<Item = WorkKey>) {
        let mut used = vec![false; self.rows.len()];
        for key in in_use.chain([WorkKey::OWN]) {
            if let Some(used) = used.get_mut(key.row as usize) {
                *used = true;
            }
        }
        for (row, used) in (0..).zip(used) {
            let at = &mut self.rows[row as usize];
            let Some(known) = at else { continue };
            let is_idle = known.spent_ns == known.looked_at_ns;
            known.looked_at_ns = known.spent_ns;
            if !used && is_idle {
                self.by_owner.remove(&known.owner);
                *at = None;
                self.free.push(row);
            }
        }
        while self.rows.last().is_some_and(Option::is_none) {
            self.rows.pop();
        }
        let rows = self.rows.len();
        self.free.retain(|row| (*row as usize) < rows);
        self.rows.shrink_to(2 * rows);
        self.free.shrink_to(2 * self.free.len());
        self.by_owner.shrink_to(2 * self.by_owner.len());
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        /// Nothing is lost or made up: all accounts together get what the thread has used, each in proportion.
        #[test]
        fn processor_time_is_divided_in_proportion(
            spent in prop::collection::vec(0..1_000_000_000u64, 1..20),
            ran in 0..2_000_000_000u64,
        ) {
            let mut accounts = Accounts::new();
            let keys: Vec<WorkKey> = (0..spent.len())
                .map(|n| accounts.open(&format!("caller-{n}").into()))
                .collect();
            for (key, ns) in keys.iter().zip(&spent) {
                accounts.charge(*key, *ns);
            }
            let mut seen: HashMap<usize, u64> = HashMap::new();
            accounts.settle(ran, |key, _, ns| *seen.entry(key.row()).or_default() += ns);
            prop_assert_eq!(seen.values().sum::<u64>(), ran);
            let all: u64 = spent.iter().sum();
            for (key, ns) in keys.iter().zip(&spent) {
                let got = seen.get(&key.row()).copied().unwrap_or(0) as f64;
                let wanted = *ns as f64 * ran as f64 / all.max(1) as f64;
                prop_assert!((got - wanted).abs() <= 1.0 + wanted * 1e-9, "{got} {wanted}");
            }
            // What is settled is not charged again.
            accounts.settle(0, |_, _, _| panic!("nothing was used"));
        }
    }

    #[test]
    fn accounts_of_callers_that_are_gone_are_closed_and_their_keys_never_given_again() {
        let mut accounts = Accounts::new();
        let keys: Vec<WorkKey> = (0..1_000)
            .map(|n| accounts.open(&format!("caller-{n}").into()))
            .collect();
        assert!(accounts.are_many());
        keys.iter().for_each(|key| accounts.charge(*key, 1));
        let in_use = keys[500];
        accounts.forget_unused([in_use].into_iter());
        assert!(accounts.owner(keys[0]).is_some(), "it has just worked");
        accounts.charge(keys[7], 1);
        accounts.forget_unused([in_use].into_iter());
        let left: Vec<&str> = accounts.costs().map(|(owner, _)| &**owner).collect();
        assert_eq!(left, ["heddle", "caller-7", "caller-500"]);
        // Rows are reused, keys are not.
        let new: Vec<WorkKey> = (0..1_000)
            .map(|n| accounts.open(&format!("new-{n}").into()))
            .collect();
        assert!(new.iter().all(|key| !keys.contains(key)));
        assert_eq!(accounts.owner(keys[0]), None);
        assert_eq!(accounts.rows.len(), 1_003, "rows are used again");
        assert_eq!(accounts.open(&"caller-500".into()), in_use);
    }
}
