//! Requests of operators, and messages of the proxy.

use std::fs::File;
use std::io;
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};
use std::time::Instant;

use heddle_model::WorkloadName;

use super::child::Proxy;
use super::{RunningHolder, leftovers};
use crate::channel::{ToHolder, receive};
use crate::request::{HolderStatus, PodState, ProxyStatus, Reply, Request};
use crate::{Exclude, Fate, PodId};

/// Limit of proxy messages handled before other events get their turn.
const BATCH: usize = 256;

impl RunningHolder {
    /// Handles a request of an operator.
    pub(super) fn answer(&mut self, request: Request, netns: Option<OwnedFd>) -> Vec<Reply> {
        let done = match request {
            Request::Enroll {
                workload,
                netns: path,
                exclude,
            } => match netns {
                Some(netns) => self.enroll(&workload, path, netns, exclude),
                None => Err("the pod's network namespace is missing".to_owned()),
            },
            Request::Unenroll { workload } => self.release(&workload),
            Request::List => {
                let answers = self.proxy.as_ref().map(Proxy::answers);
                let pods = self.pods.statuses(answers);
                let pods = pods.chain(self.memory.lost()).map(Reply::Pod);
                return pods.chain([Reply::Done]).collect();
            }
            Request::Describe => return self.describe(),
        };
        match done {
            Ok(warning) => {
                let warning = warning.map(Reply::Warning).into_iter();
                warning.chain([Reply::Done]).collect()
            }
            Err(why) => vec![Reply::Refused(why)],
        }
    }

    /// The holder's status.
    fn describe(&self) -> Vec<Reply> {
        let hooks = self.pods.hooks();
        let guard = hooks.guard();
        let status = HolderStatus {
            pid: std::process::id(),
            hooks: hooks.kind(),
            without_bpf: hooks.without_bpf(),
            guard: guard.as_ref().ok().map(|folder| folder.to_path_buf()),
            without_guard: guard.err(),
            proxy: self.proxy.as_ref().map(|proxy| ProxyStatus {
                pid: proxy.pid(),
                age_s: proxy.age().as_secs(),
            }),
            guarded: Vec::new(),
        };
        let guarded = hooks.guarded().into_iter().map(Reply::Guarded);
        let status = Reply::Holder(Box::new(status));
        [status]
            .into_iter()
            .chain(guarded)
            .chain([Reply::Done])
            .collect()
    }

    /// Enrolls a pod. Returns a warning for the operator, if any.
    fn enroll(
        &mut self,
        workload: &WorkloadName,
        path: PathBuf,
        netns: OwnedFd,
        exclude: Exclude,
    ) -> Result<Option<String>, String> {
        let netns = File::from(netns);
        // Before vanished pods are released: this pod's old path may be gone, and the request names a new one.
        let known = self.pods.find_by(workload, &path, &netns, &exclude);
        // The new pod may have got the addresses of vanished ones.
        for gone in self.pods.vanished() {
            self.release_vanished(&gone);
        }
        // All checks come before the workload's earlier pod is released.
        exclude.check()?;
        self.pods.check(workload, &path, &netns)?;
        if let Some(before) = self.pods.of(workload) {
            if before.is_in(&netns) {
                if before.exclude == exclude {
                    let warning = known.map(|known| still_known_by(workload, &path, &known));
                    return Ok(self.remember().or(warning));
                }
                // Releasing it here for a moment would let its traffic pass unprotected meanwhile.
                return Err(format!(
                    "{workload} is enrolled with other exclusions: first run heddle unenroll, after which its traffic \
                    is not intercepted until it is enrolled again"
                ));
            }
            // The workload was restarted in another namespace.
            self.release(workload)?;
        }
        let id = {
            let workload = workload.clone();
            self.pods
                .enroll(workload, path, netns, exclude, Fate::default())?
        };
        if let (Some(proxy), Some(pod)) = (&mut self.proxy, self.pods.get(id)) {
            proxy.say_enrolled(pod);
        }
        let found = self.memory.recovered(workload);
        // An earlier holder may have used packet filter rules.
        if found.is_some_and(|before| before.filtered != Some(false)) {
            self.pods.clear_filters(id);
        }
        let warning = self.remember();
        tracing::info!(%workload, pod = %id, "enrolled");
        Ok(warning)
    }

    pub(super) fn release_vanished(&mut self, gone: &WorkloadName) {
        tracing::warn!(workload = %gone, "released: its namespace is not there any more");
        // Cannot fail: the caller has just found this pod.
        let _ = self.release(gone);
    }

    /// Releases a pod, or forgets a lost one. Returns a warning for the operator, if any.
    fn release(&mut self, workload: &WorkloadName) -> Result<Option<String>, String> {
        let Some(pod) = self.pods.release(workload) else {
            let lost = self.memory.recovered(workload);
            let lost = lost.ok_or_else(|| self.pods.unknown(workload))?;
            leftovers::forget(&lost);
            tracing::info!(%workload, "a lost pod is forgotten");
            let guarded = (lost.fate == Fate::Refuse).then(|| {
                format!(
                    "{workload} was lost, and is forgotten. If its namespace still exists, the guard still refuses it: \
                     heddle enroll and release it, or heddle node cleanup"
                )
            });
            return Ok(self.remember().or(guarded));
        };
        match &mut self.proxy {
            Some(proxy) => proxy.say_released(pod),
            None => self.pods.drained(pod),
        }
        let warning = self.remember();
        tracing::info!(%workload, %pod, "released");
        Ok(warning)
    }

    fn settle(&mut self, pod: PodId, state: PodState, fate: Fate) {
        if !self.stopping {
            self.is_news |= self.pods.settle(pod, state, fate);
        }
    }

    /// Handles messages of the proxy, and then stores changed pods once for all of them.
    pub(super) fn listen_to_proxy(&mut self) {
        self.hear_proxy();
        if std::mem::take(&mut self.is_news) {
            self.remember();
        }
    }

    fn hear_proxy(&mut self) {
        for _ in 0..BATCH {
            let Some(proxy) = self.proxy.as_mut().filter(|proxy| proxy.is_heard()) else {
                return;
            };
            let said = match receive::<ToHolder>(proxy.channel()) {
                Ok(Some((said, _))) => said,
                Ok(None) => {
                    // A proxy without a channel is useless, so kill it if it still lives.
                    proxy.has_hung_up = true;
                    proxy.signal(rustix::process::Signal::KILL);
                    self.begin_gap();
                    return;
                }
                Err(error) if error.kind() == io::ErrorKind::InvalidData => {
                    tracing::error!(%error, "the proxy sent a malformed message");
                    continue;
                }
                Err(_would_block) => return,
            };
            self.has_worked = true;
            match said {
                ToHolder::Ready => proxy.works(self.proxy_timeout, Instant::now()),
                // The reaction to our own signal.
                ToHolder::Stopping if self.stopping => {}
                ToHolder::Stopping => {
                    proxy.is_stopping = true;
                    tracing::warn!(
                        proxy = proxy.pid(),
                        "the proxy was told to stop by another process than its holder: until another has taken its place pods meet \
                         their fate; to stop the node, signal the holder"
                    );
                    self.pods.meet_fates();
                }
                ToHolder::Pong { number } => proxy.answered(number),
                ToHolder::Open {
                    request,
                    pod,
                    family,
                    source,
                } => {
                    proxy.answer(request, self.pods.open(pod, family, source));
                    proxy.flush(&self.pods);
                }
                ToHolder::Serving { pod, fate } => {
                    proxy.has_served = true;
                    self.settle(pod, PodState::Serving, fate);
                }
                ToHolder::Holding { pod } => self.settle(pod, PodState::Held, Fate::Refuse),
                ToHolder::Drained { pod } => self.pods.drained(pod),
            }
        }
    }
}

/// Warning for an operator who gave a path that is not used.
fn still_known_by(workload: &WorkloadName, path: &Path, known: &Path) -> String {
    let (path, known) = (path.display(), known.display());
    format!(
        "{workload} is enrolled already, and a restarted holder still looks for it at {known}: {path} does not last \
        longer, or the holder cannot follow it"
    )
}
