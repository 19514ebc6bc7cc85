//! How a task becomes ready: its waker puts it into the ready queue of its gate.

use std::cell::RefCell;
use std::rc::Rc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::task::{Wake, Waker};

use super::ready::{ReadyQueue, Work};

/// The part of a gate that wakers reach from the gate's own thread.
pub(super) struct Local {
    pub(super) id: u64,
    pub(super) ready: RefCell<ReadyQueue>,
    /// Wakes the root future; `None` while the root itself runs, since it checks the queue anyway.
    pub(super) root: RefCell<Option<Waker>>,
}

/// The part of a gate that wakers reach from other threads. Not on the request path: sockets and timers of a Worker
/// always wake on its own thread.
#[derive(Default)]
pub(super) struct Remote {
    pub(super) pending: AtomicBool,
    pub(super) ready: Mutex<Vec<Work>>,
    pub(super) root: Mutex<Option<Waker>>,
}

thread_local! {
    pub(super) static LOCAL: RefCell<Option<Rc<Local>>> = const { RefCell::new(None) };
}

pub(super) static NEXT_ID: AtomicU64 = AtomicU64::new(1);

/// The waker of one task.
pub(super) struct Signal {
    pub(super) gate: u64,
    pub(super) work: Work,
    /// Set while the task is in the ready queue, so that it is in there only once.
    pub(super) queued: AtomicBool,
    pub(super) remote: Arc<Remote>,
}

impl Wake for Signal {
    fn wake(self: Arc<Self>) {
        self.wake_by_ref();
    }

    fn wake_by_ref(self: &Arc<Self>) {
        if self.queued.swap(true, Ordering::AcqRel) {
            return;
        }
        let local = LOCAL.with(|local| {
            let local = local.borrow();
            let local = local.as_ref().filter(|local| local.id == self.gate)?;
            local.ready.borrow_mut().push(self.work);
            if let Some(root) = local.root.borrow_mut().take() {
                root.wake();
            }
            Some(())
        });
        if local.is_none() {
            let mut ready = self.remote.ready.lock().unwrap_or_else(|e| e.into_inner());
            ready.push(self.work);
            drop(ready);
            self.remote.pending.store(true, Ordering::Release);
            let root = self
                .remote
                .root
                .lock()
                .unwrap_or_else(|e| e.into_inner())
                .clone();
            if let Some(root) = root {
                root.wake();
            }
        }
    }
}
