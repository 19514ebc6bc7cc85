//! Network namespaces.

use std::fs::File;
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use rustix::thread::{LinkNameSpaceType, UnshareFlags, move_into_link_name_space, unshare_unsafe};

/// The network namespace of this thread.
const OWN: &str = "/proc/thread-self/ns/net";

/// Runs `inside` in a network namespace, on this thread, which returns to its own namespace afterwards.
///
/// Sockets and processes that `inside` creates stay in that namespace.
///
/// # Errors
/// When the namespace cannot be entered; `inside` is not called then.
///
/// # Panics
/// Aborts the process when the thread cannot return to its own namespace: everything after that would happen in the
/// wrong one.
pub fn within<T>(netns: BorrowedFd<'_>, inside: impl FnOnce() -> T) -> io::Result<T> {
    let own = File::open(OWN)?;
    move_into_link_name_space(netns, Some(LinkNameSpaceType::Network))?;
    let _back = Back(own);
    Ok(inside())
}

/// Creates a network namespace. It has only a loopback interface, which is down. The kernel removes it with its last
/// descriptor, process and socket.
///
/// # Errors
/// Without CAP_SYS_ADMIN, or when the limit of namespaces is reached.
pub fn create() -> io::Result<OwnedFd> {
    let thread = std::thread::Builder::new().spawn(|| {
        #[allow(unsafe_code, reason = "nothing else moves a thread to a new namespace")]
        // SAFETY: only the network namespace is unshared, not descriptors or folders on which other threads rely. No
        // other code knows this thread, which opens one file and ends.
        unsafe { unshare_unsafe(UnshareFlags::NEWNET) }?;
        Ok(OwnedFd::from(File::open(OWN)?))
    })?;
    thread.join().unwrap_or(Err(io::ErrorKind::Other.into()))
}

/// Returns to the original namespace when dropped, also during a panic.
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
