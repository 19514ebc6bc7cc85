//! Two Heddles in a row over plain HTTP/1.1, without a mesh between them: the second is an endpoint of the first one's
//! Service.

use std::net::SocketAddr;

use anyhow::Context;

use super::pair::comes_through;
use super::{READY_WITHIN, Running, System, Work};
use crate::ask;
use crate::child::Confinement;

impl System {
    /// Starts two and waits until a request comes through both.
    ///
    /// # Errors
    /// When one does not start, or no request comes through in time.
    pub(crate) fn start_row(&self, work: &Work, place: &Confinement) -> anyhow::Result<Running> {
        let far = self.start(work, place, &[])?;
        let target = far.targets.first().context("no target")?;
        let between: SocketAddr = ask::target(target)?.1;
        let onward = Work {
            elsewhere: true,
            ..work.by_way_of(between)?
        };
        let mut near = self.start(&onward, place, &[])?;
        let first = near.proxies.first_mut().context("no proxy")?;
        first.wait_until(READY_WITHIN, || comes_through(&near.targets))?;
        near.proxies.extend(far.proxies);
        near.between = Some(between);
        near.dirs.extend(far.dirs);
        Ok(near)
    }
}
