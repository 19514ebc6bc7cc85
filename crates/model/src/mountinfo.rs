//! Reads the text of `/proc/PID/mountinfo` (`proc_pid_mountinfo(5)`).

use std::ffi::OsString;
use std::os::unix::ffi::OsStringExt;
use std::path::PathBuf;

/// A mounted file system: one line.
#[derive(Debug, PartialEq, Eq)]
pub struct Mount<'l> {
    /// The folder of the file system that is mounted.
    pub root: PathBuf,
    /// The mount point.
    pub target: PathBuf,
    /// The kind of file system, such as `cgroup2`.
    pub kind: &'l str,
    /// Options of the file system; for control groups of version 1 they name the controllers.
    pub options: &'l str,
}

impl<'l> Mount<'l> {
    /// All mounts of a text, in its order. Lines that are not understood are left out.
    pub fn all(mountinfo: &'l str) -> impl Iterator<Item = Mount<'l>> {
        mountinfo.lines().filter_map(Mount::parse)
    }

    fn parse(line: &'l str) -> Option<Self> {
        let (front, back) = line.split_once(" - ")?;
        let mut front = front.split(' ').skip(3);
        let (root, target) = (unescape(front.next()?), unescape(front.next()?));
        let mut back = back.split(' ');
        let kind = back.next()?;
        let options = back.nth(1)?;
        Some(Mount {
            root,
            target,
            kind,
            options,
        })
    }
}

/// mountinfo writes spaces and similar characters in octal, such as `\040`.
fn unescape(text: &str) -> PathBuf {
    let mut bytes = Vec::with_capacity(text.len());
    let mut rest = text.as_bytes();
    while let Some((first, after)) = rest.split_first() {
        let digits = after.get(..3).filter(|_| *first == b'\\');
        let digits = digits.and_then(|digits| std::str::from_utf8(digits).ok());
        match digits.and_then(|digits| u8::from_str_radix(digits, 8).ok()) {
            Some(byte) => {
                bytes.push(byte);
                rest = &after[3..];
            }
            None => {
                bytes.push(*first);
                rest = after;
            }
        }
    }
    PathBuf::from(OsString::from_vec(bytes))
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::{Mount, unescape};

    #[test]
    fn lines_are_understood() {
        let line = r"43 27 254:0 /run/ne\040tns /run/a\040b\134c rw,relatime shared:1 master:2 - ext4 /dev/vda rw,discard";
        let mount = Mount::parse(line).expect("a mount");
        assert_eq!(mount.root, Path::new("/run/ne tns"));
        assert_eq!(mount.target, Path::new(r"/run/a b\c"));
        assert_eq!((mount.kind, mount.options), ("ext4", "rw,discard"));
    }

    #[test]
    fn what_is_no_line_is_left_out() {
        for line in [
            "",
            "1 2 3",
            " - ",
            "1 2 3 4 - a b c",
            "1 2 0:1 / /x rw - ext4",
        ] {
            assert_eq!(Mount::all(line).next(), None, "{line}");
        }
        assert_eq!(unescape(r"/a\9b\04"), Path::new(r"/a\9b\04"));
    }
}
