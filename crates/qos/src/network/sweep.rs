//! What interfaces should have, and who wants it.

use std::collections::BTreeSet;

use super::held::{Held, Key, Part};
use super::keeper::{About, Refusal};
use super::kernel::{Kernel, Limited, Link};
use super::{FILTERS, LEFT_ALONE, Network, OfflinePod, Pause, PodLink, Uplink};
use crate::arbiter::journal::Store;
use crate::controllers::bandwidth::Bandwidth;
use crate::now::Now;

impl<K: Kernel, S: Store<Key, Held>> Network<K, S> {
    /// Brings interfaces to what they should have, and puts back what no pod wants any more.
    pub(super) fn sweep(&mut self, now: Now) {
        self.left_alone.retain(|_, pause| now.since < pause.until);
        if !self.look(now) {
            return;
        }
        let mut wanted = BTreeSet::new();
        let mut links = Vec::new();
        for pod in self.pods.clone() {
            let ends = match self.keeper.kernel().host_ends(&pod.group) {
                Ok(ends) => ends,
                Err(error) => {
                    tracing::debug!(pod = pod.name, "its interfaces are not known: {error}");
                    continue;
                }
            };
            for link in ends {
                self.mark(&link, &pod, now, &mut wanted);
                let is_shaped = self.shape_pod(&link, &pod, now, &mut wanted);
                let before = self.links.iter().find(|before| before.link == link);
                links.push(PodLink {
                    rate: before.map_or(0, |before| before.rate),
                    bytes: before.and_then(|before| before.bytes),
                    heard: before.map_or(now.since, |before| before.heard),
                    link,
                    is_shaped,
                });
            }
        }
        self.links = links;
        // An interface without offline pods behind it stays as it is. One without an interface of its own may send by the
        // mesh's proxy.
        match self.pods.is_empty() {
            true => self.uplinks.clear(),
            false => self.shape_uplinks(now, &mut wanted),
        }
        let unwanted = self
            .keeper
            .held()
            .keys()
            .filter(|key| !wanted.contains(*key));
        let mut unwanted: Vec<Key> = unwanted.cloned().collect();
        unwanted.sort_by_key(|key| key.part);
        for key in unwanted {
            let done = self.keeper.restore(&key);
            self.put_back(&key, &done);
        }
    }

    /// Looks which parts are as they should. Without pods and without anything held there is nothing to look at.
    fn look(&mut self, now: Now) -> bool {
        self.unchanged.clear();
        if self.pods.is_empty() && self.keeper.held().is_empty() {
            return true;
        }
        let seen = match self.keeper.kernel().look() {
            Ok(seen) => seen,
            Err(error) => {
                tracing::warn!("the interfaces cannot be looked at: {error}");
                return false;
            }
        };
        self.unchanged = self.keeper.unchanged(&seen);
        let since = self
            .checked_filters
            .map(|last| now.since.saturating_sub(last));
        if since.is_none_or(|since| since >= FILTERS) {
            self.checked_filters = Some(now.since);
            self.unchanged.retain(|key| key.part != Part::Marker);
        }
        true
    }

    fn mark(&mut self, link: &Link, pod: &OfflinePod, now: Now, wanted: &mut BTreeSet<Key>) {
        let about = About {
            pod: &pod.name,
            why: "offline: what it sends is marked",
            since_s: now.unix_s,
        };
        let keys = [Part::Clsact, Part::Marker].map(|part| self.keeper.key(link, part));
        if keys.iter().any(|key| self.left_alone.contains_key(key)) {
            return;
        }
        if self.unchanged.contains(&keys[1]) {
            wanted.extend(keys);
            return;
        }
        let done = self.keeper.mark(link, self.settings.mark, about);
        // What is held of both is kept, even if only one could be done.
        wanted.extend(keys);
        self.leave_alone(done, now);
    }

    fn shape_pod(
        &mut self,
        link: &Link,
        pod: &OfflinePod,
        now: Now,
        wanted: &mut BTreeSet<Key>,
    ) -> bool {
        let about = About {
            pod: &pod.name,
            why: "offline: it receives what online pods leave",
            since_s: now.unix_s,
        };
        self.shape(link, Limited::All, about, now, wanted)
    }

    fn shape_uplinks(&mut self, now: Now, wanted: &mut BTreeSet<Key>) {
        let mut uplinks = Vec::new();
        for name in self.settings.interfaces.clone() {
            let link = match self.keeper.kernel().link(&name) {
                Ok(link) => {
                    if self.missing.remove(&name).is_some() {
                        tracing::info!("the interface {name} is there");
                    }
                    link
                }
                Err(error) => {
                    let why = format!("{error}: pods are not limited there until it is");
                    if !self.missing.contains_key(&name) {
                        tracing::warn!("the interface {name} of qos.network.interfaces: {why}");
                    }
                    self.missing.insert(name, why);
                    continue;
                }
            };
            let about = About {
                pod: &name,
                why: "offline pods send what online pods leave",
                since_s: now.unix_s,
            };
            let limited = Limited::Marked(self.settings.mark);
            if !self.shape(&link, limited, about, now, wanted) {
                continue;
            }
            let at = self.uplinks.iter().position(|before| before.link == link);
            let before = at.map(|at| self.uplinks.swap_remove(at));
            uplinks.push(before.unwrap_or_else(|| Uplink {
                link,
                sending: Bandwidth::new(self.settings.rates),
                rate: self.settings.rates.lowest(),
                received: None,
                offline: 0,
            }));
        }
        self.uplinks = uplinks;
    }

    /// Gives an interface our root, and returns whether it has it.
    fn shape(
        &mut self,
        link: &Link,
        limited: Limited,
        about: About<'_>,
        now: Now,
        wanted: &mut BTreeSet<Key>,
    ) -> bool {
        let key = self.keeper.key(link, Part::Root);
        if self.left_alone.contains_key(&key) {
            return false;
        }
        if self.unchanged.contains(&key) {
            wanted.insert(key);
            return true;
        }
        let lowest = self.settings.rates.lowest();
        let done = self.keeper.shape(link, limited, lowest, about);
        // What it counts and its rate begin anew.
        if matches!(done, Ok(true)) {
            self.uplinks.retain(|uplink| uplink.link != *link);
            self.links.retain(|pod| pod.link != *link);
        }
        let is_there = self.leave_alone(done, now);
        if is_there {
            wanted.insert(key);
        }
        is_there
    }

    fn leave_alone(&mut self, done: Result<bool, Refusal>, now: Now) -> bool {
        let refusal = match done {
            Ok(is_new) => {
                self.counts.writes += u64::from(is_new);
                return true;
            }
            Err(refusal) => refusal,
        };
        self.counts.foreign += u64::from(matches!(refusal, Refusal::Foreign(..)));
        self.counts.failed += u64::from(matches!(refusal, Refusal::Failed(..)));
        match &refusal {
            Refusal::Gone(_) => tracing::debug!("{refusal}"),
            Refusal::Foreign(key, _) | Refusal::Failed(key, _) => {
                tracing::warn!("{refusal}; it is tried again in {} s", LEFT_ALONE.as_secs());
                let pause = Pause {
                    until: now.since + LEFT_ALONE,
                    why: refusal.to_string(),
                };
                self.left_alone.insert(key.clone(), pause);
            }
        }
        false
    }
}
