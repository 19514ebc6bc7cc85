//! Network namespaces.

use std::fs::File;
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use rustix::thread::{LinkNameSpaceType, UnshareFlags, move_into_link_name_space, unshare_unsafe};

/// The namespace of this thread.
const OWN: &str = "/proc/thread-self/ns/net";

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
    let own = File::open(OWN)?;
    move_into_link_name_space(netns, Some(LinkNameSpaceType::Network))?;
    let _back = Back(own);
    Ok(inside())
}

/// A new network namespace, empty but for a loopback interface that is down. It is gone with the last descriptor,
/// process and socket that it has.
///
/// # Errors
/// Without CAP_SYS_ADMIN, or when there are too many.
pub fn create() -> io::Result<OwnedFd> {
    let thread = std::thread::Builder::new().spawn(|| {
        #[allow(unsafe_code, reason = "nothing else moves a thread to a new namespace")]
        // SAFETY: what other threads rely on, descriptors and folders, is not unshared, and this thread, which
        // no other code knows, opens one file and ends.
        unsafe { unshare_unsafe(UnshareFlags::NEWNET) }?;
        Ok(OwnedFd::from(File::open(OWN)?))
    })?;
    thread.join().unwrap_or(Err(io::ErrorKind::Other.into()))
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
