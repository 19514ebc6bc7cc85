//! What operators and the proxy ask for.

use std::fs::File;
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::path::PathBuf;

use heddle_model::WorkloadName;

use super::{Holder, sockets};
use crate::channel::{ToHolder, receive};
use crate::request::{PodState, Reply, Request};
use crate::{Exclude, Fate, PodId};

/// Messages of the proxy that are answered before others get their turn.
const BATCH: usize = 256;

impl Holder {
    /// Answers an operator.
    pub(super) fn answer(&mut self, request: Request, netns: Option<OwnedFd>) -> Vec<Reply> {
        let done = match request {
            Request::Enrol {
                workload,
                netns: path,
                exclude,
            } => match netns {
                Some(netns) => self.enrol(&workload, path, netns, exclude),
                None => Err("the pod's network namespace is missing".to_owned()),
            },
            Request::Release { workload } => self.release(&workload),
            Request::List => {
                let has_proxy = self.proxy.is_some();
                let pods = self.pods.all().map(|pod| Reply::Pod(pod.status(has_proxy)));
                return pods.chain([Reply::Done]).collect();
            }
        };
        vec![done.map_or_else(Reply::Refused, |()| Reply::Done)]
    }

    fn enrol(
        &mut self,
        workload: &WorkloadName,
        path: PathBuf,
        netns: OwnedFd,
        exclude: Exclude,
    ) -> Result<(), String> {
        let netns = File::from(netns);
        // Their addresses may be those of others by now.
        for gone in self.pods.vanished() {
            tracing::warn!(workload = %gone, "released: its namespace is not there any more");
            self.release(&gone)?;
        }
        // Before anything is given up for it.
        exclude.check()?;
        self.pods.check(workload, &path, &netns)?;
        if let Some(before) = self.pods.of(workload) {
            if before.is_in(&netns) {
                if before.exclude == exclude {
                    return Ok(());
                }
                // Letting go of it for a moment would let it speak in the clear for as long.
                return Err(format!(
                    "{workload} is enrolled with other exceptions: heddle release it first, which leaves it \
                     alone until it is enrolled again"
                ));
            }
            // It was started anew, in another namespace, under the same name.
            self.release(workload)?;
        }
        let id = {
            let workload = workload.clone();
            self.pods
                .enrol(workload, path, netns, exclude, Fate::default())?
        };
        if let (Some(proxy), Some(pod)) = (&mut self.proxy, self.pods.get(id)) {
            proxy.say_enrolled(pod);
        }
        self.memory.recovered(workload);
        self.remember();
        tracing::info!(%workload, pod = %id, "enrolled");
        Ok(())
    }

    fn release(&mut self, workload: &WorkloadName) -> Result<(), String> {
        let Some(pod) = self.pods.release(workload) else {
            return Err(format!("{workload} is not enrolled here"));
        };
        match &mut self.proxy {
            Some(proxy) => proxy.say_released(pod),
            None => self.pods.forget(pod),
        }
        self.remember();
        tracing::info!(%workload, %pod, "released");
        Ok(())
    }

    fn settle(&mut self, pod: PodId, state: PodState, fate: Fate) {
        if !self.stopping && self.pods.settle(pod, state, fate) {
            self.remember();
        }
    }

    /// Does what the proxy asks for.
    pub(super) fn listen_to_proxy(&mut self) {
        for _ in 0..BATCH {
            let Some(proxy) = self.proxy.as_mut().filter(|proxy| proxy.is_heard()) else {
                return;
            };
            let said = match receive::<ToHolder>(proxy.channel()) {
                Ok(Some((said, _))) => said,
                Ok(None) => {
                    // One that cannot be spoken to is of no use, if it lives at all. Clients whose connections it
                    // had dial again at once: they are not to wait for the next one.
                    proxy.has_hung_up = true;
                    self.pods.proxy_died();
                    proxy.signal(rustix::process::Signal::KILL);
                    return;
                }
                Err(error) if error.kind() == io::ErrorKind::InvalidData => {
                    tracing::error!(%error, "the proxy says what is not understood");
                    continue;
                }
                Err(_would_block) => return,
            };
            self.has_worked = true;
            match said {
                ToHolder::Ready => {}
                ToHolder::Open {
                    request,
                    pod,
                    family,
                    source,
                } => {
                    let made = match self.pods.get(pod) {
                        Some(pod) => sockets::open(pod.netns.as_fd(), family, source),
                        None => Err(io::ErrorKind::NotFound.into()),
                    };
                    proxy.answer(request, made);
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
