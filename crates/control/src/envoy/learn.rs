//! Learning what gateways report, whichever way they do.

use std::collections::BTreeSet;
use std::fmt::Display;
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;

use tonic::Status;
use tracing::{debug, error};

use super::roster::Report;
use crate::Shared;

impl Shared {
    /// Learns what a gateway reports.
    pub(super) async fn learn(
        self: &Arc<Self>,
        gateway: &impl Display,
        reports: BTreeSet<Report>,
    ) -> Result<(), Status> {
        self.counters
            .accesses_reported
            .fetch_add(reports.len() as u64, Relaxed);
        if !self.envoys.has_news(&reports) {
            return Ok(());
        }
        let (envoys, now) = (self.envoys.clone(), (self.clock)().as_secs());
        // It writes to the disk.
        let learned = self.blocking(move || envoys.learn(&reports, now)).await?;
        self.counters
            .dependencies_learned
            .fetch_add(learned.count as u64, Relaxed);
        debug!(%gateway, count = learned.count, "dependencies were learned");
        if let Err(why) = learned.written {
            error!("dependencies could not be stored, and are lost when this process ends: {why}");
        }
        Ok(())
    }
}
