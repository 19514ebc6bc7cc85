//! Network namespaces.

use std::fs::File;
use std::io;
use std::os::fd::{AsFd, BorrowedFd};

use rustix::thread::{LinkNameSpaceType, move_into_link_name_space};

/// Does something inside a network namespace, on this thread, which is back in its own afterwards.
///
/// Sockets that `inside` makes, and programs that it starts, stay in that namespace.
///
/// # Errors
/// When the namespace cannot be entered; `inside` was not called then.
///
/// # Panics
/// The process is ended when its own namespace cannot be entered again: whatever it did next would be done in
/// the wrong place.
pub fn within<T>(netns: BorrowedFd<'_>, inside: impl FnOnce() -> T) -> io::Result<T> {
    let own = File::open("/proc/thread-self/ns/net")?;
    move_into_link_name_space(netns, Some(LinkNameSpaceType::Network))?;
    let _back = Back(own);
    Ok(inside())
}

/// Goes back, also from a panic.
struct Back(File);

impl Drop for Back {
    fn drop(&mut self) {
        let network = Some(LinkNameSpaceType::Network);
        if let Err(error) = move_into_link_name_space(self.0.as_fd(), network) {
            eprintln!("heddle: cannot return to the network namespace it started in: {error}");
            std::process::abort();
        }
    }
}
