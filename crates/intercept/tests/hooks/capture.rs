//! Captures packets on the node's side of a pod's link.

use std::os::fd::OwnedFd;

use rustix::net::{AddressFamily, Protocol, RecvFlags, SocketFlags, SocketType, recv, socket_with};

/// All protocols, in network byte order (packet(7), ETH_P_ALL).
const EVERYTHING: u16 = 3u16.to_be();

/// Captures on every link of the namespace in which it is created.
pub(crate) struct Capture(OwnedFd);

impl Capture {
    pub(crate) fn start() -> Capture {
        let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
        let protocol = std::num::NonZeroU32::new(EVERYTHING.into()).map(Protocol::from_raw);
        let socket = socket_with(AddressFamily::PACKET, SocketType::RAW, flags, protocol).unwrap();
        Capture(socket)
    }

    /// Number of TCP and UDP packets captured since the last call. ICMP and neighbour discovery are not
    /// counted.
    pub(crate) fn heard(&self) -> usize {
        let mut count = 0;
        let mut frame = [0; 256];
        while let Ok((length, _)) = recv(&self.0, &mut frame, RecvFlags::empty()) {
            let frame = &frame[..length.min(frame.len())];
            let protocol = match frame.get(12..14) {
                Some([0x08, 0x00]) => frame.get(14 + 9),
                Some([0x86, 0xdd]) => frame.get(14 + 6),
                _ => None,
            };
            count += usize::from(matches!(protocol, Some(6 | 17)));
        }
        count
    }
}
