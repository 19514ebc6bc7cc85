//! Orders to the Workers of a crew.

use std::sync::Arc;

use heddle_intercept::Sockets;
use heddle_transport::Identities;

use super::super::steal::Taking;
use super::Crew;
use crate::intake::Intake;
use crate::place::Pods;
use crate::route::Snapshot;
use crate::worker::Command;

impl Crew {
    /// Makes one Worker give connections to another.
    pub(in super::super) fn take(&mut self, taking: Taking) {
        let (Some(from), Some(to)) = (self.active.get(taking.from), self.active.get(taking.to))
        else {
            return;
        };
        from.handle.mailbox.send(Command::Give {
            to: to.handle.intake.clone(),
            share: taking.share,
        });
        self.common.stats.takings.inc();
    }

    /// Makes every Worker hand its connections to the next one.
    pub(in super::super) fn rotate(&self) {
        let next = self.active.iter().cycle().skip(1);
        for (member, next) in self.active.iter().zip(next) {
            let to = next.handle.intake.clone();
            member.handle.mailbox.send(Command::Give { to, share: 1.0 });
        }
    }

    /// Makes every Worker panic.
    #[cfg(test)]
    pub(in super::super) fn fault(&self) {
        for member in &self.active {
            member.handle.mailbox.send(Command::Fault);
        }
    }

    pub(in super::super) fn apply(&mut self, snapshot: Arc<Snapshot>) {
        for member in self.active.iter().chain(&self.retiring) {
            let snapshot = Arc::clone(&snapshot);
            member.handle.mailbox.send(Command::Apply(snapshot));
        }
        self.snapshot = Some(snapshot);
    }

    pub(in super::super) fn identify(&mut self, identities: Arc<Identities>) {
        for member in self.active.iter().chain(&self.retiring) {
            let identities = Arc::clone(&identities);
            member.handle.mailbox.send(Command::Identify(identities));
        }
        self.identities = Some(identities);
    }

    pub(in super::super) fn enter_pods(&mut self, pods: Arc<Pods>) {
        for member in self.active.iter().chain(&self.retiring) {
            member.handle.mailbox.send(Command::Pods(Arc::clone(&pods)));
        }
        self.pods = pods;
    }

    pub(in super::super) fn ask_for_sockets(&mut self, sockets: Sockets) {
        for member in self.active.iter().chain(&self.retiring) {
            let sockets = sockets.clone();
            member.handle.mailbox.send(Command::Sockets(sockets));
        }
        self.sockets = Some(sockets);
    }

    /// Makes every Worker hand over the connections of callers of the other class, to these Workers.
    pub(in super::super) fn sort(&self, to: &[Intake]) {
        for member in &self.active {
            let to = to.to_vec();
            member.handle.mailbox.send(Command::Sort { to });
        }
    }
}
