//! Reports to the control plane what lazy callers use by this node as their gateway, so that they can learn it.

use std::time::Duration;

use heddle_proxy::Access;
use heddle_xds::{Client, MAX_ACCESSES};
use tokio::sync::mpsc;
use tokio::task::JoinHandle;
use tokio::time::sleep;

/// What a caller uses is reported so long after: it waits for its answer, and what it learns costs its Envoy and the control
/// plane processor time.
const AFTER: Duration = Duration::from_millis(5);

/// Takes what Workers tell, and makes one report at a time of it.
pub(crate) struct Reporter {
    accesses: mpsc::Receiver<Access>,
    under_way: Option<JoinHandle<()>>,
}

impl Reporter {
    /// What comes out of the sink of the node's proxy.
    pub(crate) fn new(accesses: mpsc::Receiver<Access>) -> Self {
        Reporter {
            accesses,
            under_way: None,
        }
    }

    /// Waits until there is something to report and the last report has ended. It is cancel-safe.
    pub(super) async fn take(&mut self) -> Vec<Access> {
        if let Some(under_way) = &mut self.under_way {
            // It fails only when the runtime ends.
            let _ended = under_way.await;
            self.under_way = None;
        }
        let mut accesses = Vec::new();
        if self.accesses.recv_many(&mut accesses, MAX_ACCESSES).await == 0 {
            // The proxy is gone.
            std::future::pending::<()>().await;
        }
        accesses
    }

    /// Reports these in a task of its own: the answer may take a while. What is not reported comes again.
    pub(super) fn report(&mut self, client: Client, accesses: Vec<Access>) {
        self.under_way = Some(tokio::spawn(async move {
            sleep(AFTER).await;
            let accesses = accesses.into_iter();
            let accesses = accesses.map(|access| (access.caller, access.address));
            if let Err(why) = client.report(accesses).await {
                tracing::debug!(%why, "what callers use was not reported");
            }
        }));
    }
}
