//! The two programs of the packet filter: one that sets the mark, and one that recognises it.

use std::io;
use std::os::fd::{FromRawFd, OwnedFd};

use heddle_model::PacketMark;

/// An instruction of BPF (Documentation/bpf/standardization/instruction-set.rst, `struct bpf_insn`): code, registers
/// (destination in the lower half), offset, number.
type Instruction = (u8, u8, i16, i32);

/// Bytes from the start of `struct __sk_buff` to its mark (include/uapi/linux/bpf.h).
const MARK: i16 = 8;
/// `BPF_PROG_LOAD`, and `BPF_PROG_TYPE_SCHED_CLS`.
const LOAD: libc::c_long = 5;
const CLASSIFIER: u32 = 3;

/// A program that sets the mark of a packet and lets the next filter decide (`TC_ACT_UNSPEC`).
fn marker(mark: PacketMark) -> [Instruction; 6] {
    [
        // r2 = packet.mark
        (0x61, 0x12, MARK, 0),
        // r2 &= !mask (32 bits)
        (0x54, 0x02, 0, (!mark.mask()).cast_signed()),
        // r2 |= value
        (0x44, 0x02, 0, mark.value().cast_signed()),
        // packet.mark = r2
        (0x63, 0x21, MARK, 0),
        // r0 = -1
        (0xb4, 0x00, 0, -1),
        // return r0
        (0x95, 0x00, 0, 0),
    ]
}

/// Part of `union bpf_attr` for loading a program; the kernel takes the rest as zeros.
#[repr(C)]
struct Load {
    program_type: u32,
    instructions: u32,
    first: u64,
    license: u64,
    log_level: u32,
    log_size: u32,
    log: u64,
    kernel_version: u32,
    flags: u32,
    name: [u8; 16],
}

/// Loads the program that sets the mark. The kernel keeps it while a filter uses it.
///
/// # Errors
/// Without CAP_BPF and CAP_NET_ADMIN, or on a kernel without BPF.
pub(super) fn load_marker(mark: PacketMark) -> io::Result<OwnedFd> {
    let code: Vec<u8> = marker(mark).iter().flat_map(encoded).collect();
    let license = c"Apache-2.0";
    let mut name = [0; 16];
    name[..super::kernel::MARKER_NAME.len()].copy_from_slice(super::kernel::MARKER_NAME.as_bytes());
    let load = Load {
        program_type: CLASSIFIER,
        instructions: 6,
        first: code.as_ptr().addr() as u64,
        license: license.as_ptr().addr() as u64,
        log_level: 0,
        log_size: 0,
        log: 0,
        kernel_version: 0,
        flags: 0,
        name,
    };
    #[allow(unsafe_code, reason = "no safe call loads a program")]
    // SAFETY: the kernel reads `size` bytes of `load`, 6 instructions of 8 bytes from `code`, and `license` up to its zero. All
    // live until the call is over, and it writes nothing.
    let fd = unsafe { libc::syscall(libc::SYS_bpf, LOAD, &raw const load, size_of::<Load>()) };
    match i32::try_from(fd) {
        Ok(fd) if fd >= 0 => {
            #[allow(unsafe_code, reason = "the call returns a plain number")]
            // SAFETY: the kernel has just made this descriptor, and no other code knows it.
            Ok(unsafe { OwnedFd::from_raw_fd(fd) })
        }
        _ => Err(io::Error::last_os_error()),
    }
}

fn encoded(&(code, registers, offset, number): &Instruction) -> [u8; 8] {
    let (offset, number) = (offset.to_ne_bytes(), number.to_ne_bytes());
    [
        code, registers, offset[0], offset[1], number[0], number[1], number[2], number[3],
    ]
}

/// A program of classic BPF that recognises the mark, or packets of IPv4 and IPv6 with the DSCP of Lower Effort (RFC 8622),
/// which their senders so chose. As `struct sock_filter` (include/uapi/linux/filter.h). It returns -1 for the filter's own
/// class, 0 for none; the kernel returns 0 for a packet that is too short.
pub(super) fn recogniser(mark: PacketMark) -> (u16, Vec<u8>) {
    /// Reads the mark: `SKF_AD_OFF + SKF_AD_MARK`.
    const MARK: u32 = (-0x1000_i32 + 20).cast_unsigned();
    /// Reads at the beginning of the network header: `SKF_NET_OFF`.
    const NETWORK: u32 = (-0x10_0000_i32).cast_unsigned();
    // The numbers after the second are how many instructions to leave out: if equal, else.
    let code: [(u16, u8, u8, u32); 12] = [
        // A = packet.mark & mask; equal to value: to -1.
        (0x20, 0, 0, MARK),
        (0x54, 0, 0, mark.mask()),
        (0x15, 7, 0, mark.value()),
        // X = A = the first 16 bits: version 4, 4 bits, DSCP, 2 bits; or version 6, DSCP, 6 bits.
        (0x28, 0, 0, NETWORK),
        (0x07, 0, 0, 0),
        (0x54, 0, 0, 0xf0fc),
        (0x15, 3, 0, 0x4004),
        // A = X
        (0x87, 0, 0, 0),
        (0x54, 0, 0, 0xffc0),
        (0x15, 0, 1, 0x6040),
        (0x06, 0, 0, u32::MAX),
        (0x06, 0, 0, 0),
    ];
    let mut bytes = Vec::with_capacity(8 * code.len());
    for (code, equal, else_, number) in code {
        bytes.extend_from_slice(&code.to_ne_bytes());
        bytes.extend_from_slice(&[equal, else_]);
        bytes.extend_from_slice(&number.to_ne_bytes());
    }
    (12, bytes)
}
