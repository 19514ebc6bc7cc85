//! Pressure as the kernel tells it (PSI, Documentation/accounting/psi.rst), of the machine and of groups of version 2.

use std::fs::File;
use std::io::{self, Read};
use std::path::Path;

use super::mounts::{Hierarchy, Version};
use super::{ControlGroup, System};
use crate::controllers::eviction::{Cause, Pressure};

/// Most bytes that are read of a file. The kernel's have about 130.
const MAX_FILE: u64 = 1_024;

/// The pressure of the whole machine.
///
/// # Errors
/// The kernel does not tell (`CONFIG_PSI`, `psi=1`), or is not understood.
pub(crate) fn of_machine(cause: Cause) -> io::Result<Pressure> {
    read(&Path::new("/proc/pressure").join(cause.as_str()))
}

impl System {
    /// The pressure of a group and all below it; none with version 1.
    ///
    /// # Errors
    /// There is no such group, the kernel does not tell, or is not understood.
    pub(crate) fn pressure(
        &self,
        group: &ControlGroup,
        cause: Cause,
    ) -> io::Result<Option<Pressure>> {
        let mount = self.of_cause(cause)?;
        if mount.version == Version::V1 {
            return Ok(None);
        }
        let file = format!("{cause}.pressure");
        read(&mount.at.join(group.as_str()).join(file)).map(Some)
    }

    /// Bytes of file pages below a group that are not in use, and so could be had at once.
    ///
    /// # Errors
    /// There is no such group, or its file is not understood.
    pub(crate) fn idle_file_pages(&self, group: &ControlGroup) -> io::Result<u64> {
        let mount = self.of_cause(Cause::Memory)?;
        let field = match mount.version {
            Version::V1 => "total_inactive_file",
            Version::V2 => "inactive_file",
        };
        let stat = self.whole_text(mount, group, "memory.stat")?;
        let mut lines = stat.lines();
        let value = lines.find_map(|line| line.strip_prefix(field)?.strip_prefix(' '));
        let value = value.and_then(|value| value.trim().parse().ok());
        value.ok_or_else(|| wrong("memory.stat"))
    }

    fn of_cause(&self, cause: Cause) -> io::Result<&Hierarchy> {
        match cause {
            Cause::Memory => self.memory_mount(),
            Cause::Cpu => self.cpu(),
        }
    }
}

fn read(path: &Path) -> io::Result<Pressure> {
    let mut text = String::new();
    let file = File::open(path)?;
    file.take(MAX_FILE).read_to_string(&mut text)?;
    parse(&text).ok_or_else(|| wrong(&path.display().to_string()))
}

/// The lines `some` and `full`; before Linux 5.13 there is no `full` of processors.
fn parse(text: &str) -> Option<Pressure> {
    let average = |name: &str| {
        let mut lines = text.lines();
        let rest = lines.find_map(|line| line.strip_prefix(name)?.strip_prefix(" avg10="))?;
        hundredths(rest.split(' ').next()?)
    };
    Some(Pressure {
        some: average("some")?,
        full: match text.contains("full ") {
            true => average("full")?,
            false => 0,
        },
    })
}

/// A number of percent with two digits after the point, at most 100.
fn hundredths(text: &str) -> Option<u32> {
    let (whole, part) = text.split_once('.')?;
    let is_number = |text: &str, most| {
        (1..=most).contains(&text.len()) && text.bytes().all(|one| one.is_ascii_digit())
    };
    if !is_number(whole, 3) || part.len() != 2 || !is_number(part, 2) {
        return None;
    }
    let all = whole.parse::<u32>().ok()? * 100 + part.parse::<u32>().ok()?;
    (all <= 10_000).then_some(all)
}

fn wrong(what: &str) -> io::Error {
    io::Error::new(
        io::ErrorKind::InvalidData,
        format!("{what} is not understood"),
    )
}

#[cfg(test)]
mod tests {
    use super::{Pressure, hundredths, parse};

    #[test]
    fn pressure_is_read() {
        let text = "some avg10=42.99 avg60=39.17 avg300=36.44 total=9329946778\n\
                    full avg10=0.07 avg60=0.00 avg300=0.00 total=0\n";
        let wanted = Pressure {
            some: 4_299,
            full: 7,
        };
        assert_eq!(parse(text), Some(wanted));
        let alone = "some avg10=100.00 avg60=0.00 avg300=0.00 total=1\n";
        let wanted = Pressure {
            some: 10_000,
            full: 0,
        };
        assert_eq!(parse(alone), Some(wanted));
        for wrong in [
            "",
            "full avg10=1.00 avg60=1.00\n",
            "some avg60=1.00\n",
            "some avg10=x avg60\n",
            "some avg10=1.00 avg60=0\nfull avg10=-1.00\n",
        ] {
            assert_eq!(parse(wrong), None, "{wrong}");
        }
        for wrong in [
            "",
            "1",
            "1.",
            "1.5",
            ".50",
            "-1.00",
            "+1.00",
            "100.01",
            "4294967296.00",
            "1.000",
        ] {
            assert_eq!(hundredths(wrong), None, "{wrong}");
        }
    }
}
