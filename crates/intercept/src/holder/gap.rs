//! The gap between one proxy and the next: when the next is started, and what happens to pods' connections until
//! then.
//!
//! The holder has the pods' listeners open too, so connections can wait in their backlog for the next proxy. They
//! wait when the proxy served pods and its successor is started at once. In all other cases, and when the successor
//! takes too long, the fates of pods apply.

use std::time::{Duration, Instant};

use super::child::Proxy;
use super::{Ended, HolderError, RunningHolder};

#[cfg(test)]
mod tests;

/// Minimum and maximum delay before a proxy that died is restarted. The first restart has no
/// delay.
const RESTART: (Duration, Duration) = (Duration::from_millis(50), Duration::from_secs(5));
/// A proxy that ran this long did not die of a startup failure.
const LIVED: Duration = Duration::from_secs(10);
/// The same for a proxy that has served a pod.
const SERVED: Duration = Duration::from_secs(1);
/// How long connections wait for a new proxy to serve them: the same time as for a pod whose workload the proxy does
/// not know yet.
const WAITS: Duration = Duration::from_secs(5);

/// The wait before the start after the next one.
fn longer(wait: Duration) -> Duration {
    (wait * 2).clamp(RESTART.0, RESTART.1)
}

impl Proxy {
    /// Whether it ran long enough to expect that its successor will work, too.
    fn has_proven_itself(&self) -> bool {
        let age = self.age();
        age >= LIVED || (self.has_served && age >= SERVED)
    }
}

impl RunningHolder {
    pub(super) fn start_if_due(&mut self) -> Result<(), HolderError> {
        if self.next_start.is_none_or(|due| due > Instant::now()) {
            return Ok(());
        }
        self.next_start = None;
        match Proxy::start(&self.program, &self.arguments) {
            Ok(mut proxy) => {
                self.claim.note(proxy.number());
                for pod in self.pods.all() {
                    proxy.say_enrolled(pod);
                }
                proxy.say_recalled();
                proxy.say_full(self.full.seen());
                self.proxy = Some(proxy);
            }
            Err(error) if !self.has_worked => {
                return Err(HolderError::new("cannot start the proxy", error));
            }
            Err(error) => {
                tracing::error!(%error, "cannot start the proxy; trying again");
                if self.pods.waits_until().is_some() {
                    self.pods.meet_fates();
                }
                self.start_later();
            }
        }
        Ok(())
    }

    fn start_later(&mut self) {
        self.next_start = Some(Instant::now() + self.wait);
        self.wait = longer(self.wait);
    }

    /// The proxy is gone, or unusable. Its clients reconnect at once, so this is done before everything
    /// else.
    pub(super) fn begin_gap(&mut self) {
        let proxy = self.proxy.as_ref().filter(|_| !self.stopping);
        match proxy {
            Some(proxy) if self.is_followed_at_once(proxy) => {
                self.pods.wait_until(Instant::now() + WAITS);
            }
            _ => self.pods.meet_fates(),
        }
    }

    /// Whether a successor is started at once and is likely to work.
    fn is_followed_at_once(&self, proxy: &Proxy) -> bool {
        let is_first_to_fail = proxy.has_served && self.wait.is_zero();
        !proxy.is_stopping && (proxy.has_proven_itself() || is_first_to_fail)
    }

    /// Ends the wait for a new proxy when its deadline has passed.
    pub(super) fn end_gap(&mut self, now: Instant) {
        if self.pods.waits_until().is_none_or(|until| until > now) {
            return;
        }
        match &self.proxy {
            Some(proxy) if proxy.has_served && !proxy.has_hung_up => self.pods.wait_no_longer(),
            _ => {
                tracing::error!(
                    "no proxy has served a pod for {} s: pods meet their fate until one does",
                    WAITS.as_secs()
                );
                self.pods.meet_fates();
            }
        }
    }

    /// The proxy process has ended. The fates of pods are decided before anything else.
    pub(super) fn proxy_ended(&mut self) -> Option<Ended> {
        // Skipped if it was decided when the channel was closed.
        if self.proxy.as_ref().is_some_and(|proxy| !proxy.has_hung_up) {
            self.begin_gap();
        }
        let proxy = self.proxy.take()?;
        let has_proven_itself = proxy.has_proven_itself();
        let how = proxy.reap();
        if self.stopping {
            return Some(Ended::Stopped);
        }
        match how.code() {
            Some(code) if !self.has_worked => return Some(Ended::Proxy(code)),
            _ => tracing::error!("the proxy died ({how}); it is started again"),
        }
        if has_proven_itself {
            self.wait = Duration::ZERO;
        }
        self.start_later();
        None
    }
}
