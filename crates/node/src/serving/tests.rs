use std::sync::mpsc;
use std::time::{Duration, Instant};

use tokio::runtime::Builder;

use super::in_runtime_at_once;
use crate::settings::Settings;

/// Given a blocking call that hangs, when the work is done, then the end does not wait for it.
#[test]
fn a_blocking_call_that_hangs_does_not_hold_up_the_end() {
    let (release, hangs) = mpsc::sync_channel::<()>(0);
    let began = Instant::now();
    let served = in_runtime_at_once(
        Builder::new_current_thread(),
        &Settings::default(),
        async |_| {
            let (begun, begins) = tokio::sync::oneshot::channel();
            tokio::task::spawn_blocking(move || {
                let _gone = begun.send(());
                let _released = hangs.recv_timeout(Duration::from_secs(30));
            });
            begins.await.expect("begun");
            Ok(7)
        },
    );
    assert_eq!(served.ok(), Some(7));
    assert!(began.elapsed() < Duration::from_secs(10), "it waited");
    drop(release);
}
