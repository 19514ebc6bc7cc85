//! A step for tests: a request whose field `X-Wait` names a gate waits until that gate is opened.

use std::collections::BTreeMap;
use std::future::poll_fn;
use std::sync::Mutex;
use std::task::{Poll, Waker};

use super::{CONTINUE, Step, StepContext, Stop};
use crate::collaborator::wait::Wait;

#[derive(Default)]
struct WaitGate {
    is_open: bool,
    waker: Option<Waker>,
}

static GATES: Mutex<BTreeMap<Vec<u8>, WaitGate>> = Mutex::new(BTreeMap::new());

/// Whether a request waits at the gate.
pub(super) fn has_waiting(name: &str) -> bool {
    GATES.lock().unwrap().contains_key(name.as_bytes())
}

pub(super) fn open(name: &str) {
    let mut gates = GATES.lock().unwrap();
    let gate = gates.entry(name.into()).or_default();
    gate.is_open = true;
    if let Some(waker) = gate.waker.take() {
        waker.wake();
    }
}

pub(super) fn wait(context: &mut StepContext<'_>) -> Step {
    let (head, buf) = (context.head, context.buf);
    let mut fields = head.fields.iter();
    let Some(field) = fields.find(|field| field.name.of(buf).eq_ignore_ascii_case(b"x-wait"))
    else {
        return CONTINUE;
    };
    // A waiting step must copy the parts of the head that it needs.
    let name = field.value.of(buf).to_vec();
    if GATES
        .lock()
        .unwrap()
        .get(&name)
        .is_some_and(|gate| gate.is_open)
    {
        return CONTINUE;
    }
    Err(Stop::Wait(Wait::until(poll_fn(move |cx| {
        let mut gates = GATES.lock().unwrap();
        let gate = gates.entry(name.clone()).or_default();
        match gate.is_open {
            true => Poll::Ready(()),
            false => {
                gate.waker = Some(cx.waker().clone());
                Poll::Pending
            }
        }
    }))))
}
