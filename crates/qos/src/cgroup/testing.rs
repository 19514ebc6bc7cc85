//! Groups in memory that follow the kernel's rules, for tests.

use std::cell::Cell;
use std::collections::BTreeMap;
use std::io;
use std::rc::Rc;

use super::{ControlGroup, Groups, Knob, Value};

/// Groups that can be stopped at any write, as if the process had been killed.
#[derive(Debug, Default, Clone)]
pub(crate) struct Fake {
    pub(crate) values: BTreeMap<(ControlGroup, Knob), Value>,
    /// Steps that succeed before the process counts as killed: then every one fails.
    pub(crate) steps_left: Option<Rc<Cell<u32>>>,
    pub(crate) inodes: BTreeMap<ControlGroup, u64>,
}

impl Fake {
    pub(crate) fn set(&mut self, group: &ControlGroup, knob: Knob, value: Value) {
        self.inodes.entry(group.clone()).or_insert(1);
        self.values.insert((group.clone(), knob), value);
    }

    pub(crate) fn get(&self, group: &ControlGroup, knob: Knob) -> Value {
        self.values[&(group.clone(), knob)]
    }

    /// Takes one of the steps that are left.
    pub(crate) fn step(left: Option<&Rc<Cell<u32>>>) -> io::Result<()> {
        match left {
            Some(left) if left.get() == 0 => Err(io::Error::other("killed")),
            Some(left) => {
                left.set(left.get() - 1);
                Ok(())
            }
            None => Ok(()),
        }
    }

    /// A quota of a child may not be above that of its parent (version 1).
    fn is_refused(&self, group: &ControlGroup, value: Value) -> bool {
        let Value::Amount(us) = value else {
            return false;
        };
        let path = group.as_str();
        self.values.iter().any(|((other, knob), theirs)| {
            let Value::Amount(theirs) = *theirs else {
                return false;
            };
            let other = other.as_str();
            let is_above = path
                .strip_prefix(other)
                .is_some_and(|rest| rest.starts_with('/'));
            let is_below = other
                .strip_prefix(path)
                .is_some_and(|rest| rest.starts_with('/'));
            *knob == Knob::CpuQuota && (is_above && us > theirs || is_below && us < theirs)
        })
    }
}

impl Groups for Fake {
    fn read(&self, group: &ControlGroup, knob: Knob) -> io::Result<Value> {
        let value = self.values.get(&(group.clone(), knob));
        value.copied().ok_or_else(|| io::ErrorKind::NotFound.into())
    }

    fn write(&mut self, group: &ControlGroup, knob: Knob, value: Value) -> io::Result<()> {
        let before = self.read(group, knob)?;
        if knob == Knob::CpuQuota && self.is_refused(group, value) {
            return Err(io::ErrorKind::InvalidInput.into());
        }
        // Two files: the group stops being idle, and then gets its weight.
        if before == Value::Idle && value != Value::Idle {
            Fake::step(self.steps_left.as_ref())?;
            self.set(group, knob, self.weight_after_idle());
        }
        Fake::step(self.steps_left.as_ref())?;
        self.set(group, knob, value);
        Ok(())
    }

    fn inode(&self, group: &ControlGroup, _: Knob) -> io::Result<u64> {
        let inode = self.inodes.get(group);
        inode.copied().ok_or_else(|| io::ErrorKind::NotFound.into())
    }

    fn weight_after_idle(&self) -> Value {
        Value::Amount(1_024)
    }
}
