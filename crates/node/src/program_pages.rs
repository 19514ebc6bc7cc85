//! Gives back pages of the program that only its start needed.
//!
//! Reading a configuration, joining a mesh and opening listeners run most of the program's code once. Each page that
//! they touch stays mapped, sixteen at a time, although serving needs a tenth of them. Once unmapped, these pages are
//! the first that the kernel reclaims when memory is short, and they no longer count as this process's resident memory.

use std::fs;
use std::io;
use std::ops::Range;

use rustix::mm::{Advice, madvise};

/// Unmaps the pages of the program's code. Pages that are still needed are mapped again when they run, mostly from the
/// page cache. Returns the size of the code's address range in bytes.
///
/// # Errors
/// When the kernel does not tell where the code is, or refuses.
#[expect(unsafe_code, reason = "madvise(2)")]
pub(crate) fn give_back() -> io::Result<usize> {
    let maps = fs::read_to_string("/proc/self/maps")?;
    let here = give_back as *const () as usize;
    let code = code_around(&maps, here).ok_or_else(|| {
        let reason = "/proc/self/maps has no read-only mapping of this program's code";
        io::Error::new(io::ErrorKind::NotFound, reason)
    })?;
    // SAFETY: the range is one mapping of the program's file, as read from the kernel just now, and stays mapped as
    // long as the program runs. It is private and not writable, and was never written: each page has the file's
    // content, before and after. A thread that runs in it takes a page fault and continues. The kernel may do the same
    // to these pages at any time.
    unsafe { madvise(code.start as *mut _, code.len(), Advice::LinuxDontNeed)? };
    Ok(code.len())
}

/// The code mapping around an address, if it is private, read-only and backed by a file.
fn code_around(maps: &str, address: usize) -> Option<Range<usize>> {
    maps.lines().find_map(|line| {
        let mut fields = line.split_ascii_whitespace();
        let (start, end) = fields.next()?.split_once('-')?;
        let parse = |hex| usize::from_str_radix(hex, 16).ok();
        let range = parse(start)?..parse(end)?;
        let is_code = fields.next()? == "r-xp";
        let inode = fields.nth(2)?;
        (range.contains(&address) && is_code && inode != "0").then_some(range)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    const MAPS: &str = "\
55d0c0000000-55d0c0400000 r--p 00000000 fe:00 1234 /usr/bin/heddle-node
55d0c0400000-55d0c1200000 r-xp 00400000 fe:00 1234 /usr/bin/heddle-node
55d0c1200000-55d0c1210000 rwxp 01200000 fe:00 1234 /usr/bin/heddle-node
7f0000000000-7f0000010000 r-xp 00000000 00:00 0
7ffd00000000-7ffd00021000 rw-p 00000000 00:00 0 [stack]
";

    #[test]
    fn only_a_file_s_code_that_is_never_written_is_found() {
        let found = |address| code_around(MAPS, address);
        assert_eq!(
            found(0x55d0_c050_0000),
            Some(0x55d0_c040_0000..0x55d0_c120_0000)
        );
        for other in [0x55d0_c000_0000, 0x55d0_c120_0000, 0x7f00_0000_0000, 1] {
            assert_eq!(found(other), None, "{other:x}");
        }
        assert_eq!(code_around("nonsense\n-\n1-2 r-xp\n", 1), None);
    }

    #[test]
    fn the_program_goes_on_without_the_pages_of_its_code() {
        let before = resident_file_kib();
        let code = give_back().expect("linux");
        assert!(code > 1 << 20, "{code} bytes are no program");
        let after = resident_file_kib();
        assert!(after < before, "{after} KiB of {before} KiB are left");
    }

    fn resident_file_kib() -> u64 {
        let status = fs::read_to_string("/proc/self/status").expect("linux");
        let line = status
            .lines()
            .find_map(|line| line.strip_prefix("RssFile:"));
        let kib = line.and_then(|line| line.trim().strip_suffix(" kB"));
        kib.expect("KiB").trim().parse().expect("a number")
    }
}
