//! Network namespaces.

use std::fs::File;
use std::io;
use std::mem::size_of;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd};

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

/// The number of the namespace that a socket is in, which no other ever has while the machine runs
/// (`SO_NETNS_COOKIE`).
///
/// # Errors
/// When the kernel does not know this, or `socket` is none.
pub fn netns_cookie(socket: impl AsFd) -> io::Result<u64> {
    let mut cookie = 0u64;
    let size = size_of::<u64>();
    let Ok(mut length) = libc::socklen_t::try_from(size) else {
        return Err(io::ErrorKind::InvalidInput.into());
    };
    #[allow(
        unsafe_code,
        reason = "no crate that is used here knows this option of sockets"
    )]
    // SAFETY: the descriptor is open for as long as `socket` is borrowed; the pointers are to two variables
    // of this function that nothing else refers to, and `length` is the size of the first, beyond which the
    // kernel does not write.
    let failed = unsafe {
        libc::getsockopt(
            socket.as_fd().as_raw_fd(),
            libc::SOL_SOCKET,
            libc::SO_NETNS_COOKIE,
            (&raw mut cookie).cast(),
            &raw mut length,
        )
    };
    match failed {
        0 if usize::try_from(length) == Ok(size) => Ok(cookie),
        0 => Err(io::ErrorKind::InvalidData.into()),
        _ => Err(io::Error::last_os_error()),
    }
}
