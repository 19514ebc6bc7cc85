//! What is heard on the node's side of a pod's link.

use std::os::fd::OwnedFd;

use rustix::net::{AddressFamily, Protocol, RecvFlags, SocketFlags, SocketType, recv, socket_with};

/// All packets, in the order of the network (packet(7), ETH_P_ALL).
const EVERYTHING: u16 = 3u16.to_be();

/// Listens on every link of the namespace that it is made in.
pub(crate) struct Capture(OwnedFd);

impl Capture {
    pub(crate) fn start() -> Capture {
        let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
        let protocol = std::num::NonZeroU32::new(EVERYTHING.into()).map(Protocol::from_raw);
        let socket = socket_with(AddressFamily::PACKET, SocketType::RAW, flags, protocol).unwrap();
        Capture(socket)
    }

    /// How many TCP and UDP packets were heard since it was asked last. Those of ICMP and of neighbours
    /// looking for each other are not counted.
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
