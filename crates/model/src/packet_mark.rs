//! Marks on packets, by which the kernel tells classes apart.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};

/// Bits of a packet's mark (`SO_MARK`, `fwmark`), written as `VALUE/MASK` like in `ip rule`. The other bits belong to other
/// programs, and stay.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct PacketMark {
    value: u32,
    mask: u32,
}

impl PacketMark {
    /// The mark of offline pods' packets, unless a setting says otherwise.
    ///
    /// Its two bits are none of those of kube-proxy (0x4000, 0x8000), Cilium (0x0f00, 0x1000, and the upper 16 for
    /// identities), Calico (the upper 16), the CNI plugin portmap (0x2000), or the VPC CNI (0x80). Of Heddle's own marks of
    /// sockets in pods and of Istio's 1337, no value has just these bits.
    pub const OFFLINE: PacketMark = PacketMark {
        value: 0x10,
        mask: 0x30,
    };

    /// Checks a mark.
    ///
    /// # Errors
    /// When the value is 0, which packets without a mark have, or has bits outside the mask.
    pub fn new(value: u32, mask: u32) -> Result<Self, String> {
        match (value, value & !mask) {
            (0, _) => Err(
                "its value is 0, which packets have without a mark, expected a bit that no other program uses"
                    .to_owned(),
            ),
            (_, 0) => Ok(PacketMark { value, mask }),
            (_, outside) => Err(format!(
                "the bits {outside:#x} of its value are not in its mask, expected VALUE/MASK such as 0x10/0x30"
            )),
        }
    }

    /// The bits that are set.
    pub fn value(self) -> u32 {
        self.value
    }

    /// The bits that count.
    pub fn mask(self) -> u32 {
        self.mask
    }

    /// A mark with these bits, and the others as they were.
    pub fn over(self, mark: u32) -> u32 {
        mark & !self.mask | self.value
    }
}

impl Default for PacketMark {
    fn default() -> Self {
        PacketMark::OFFLINE
    }
}

impl fmt::Display for PacketMark {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:#x}/{:#x}", self.value, self.mask)
    }
}

impl FromStr for PacketMark {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let number = |text: &str| match text.strip_prefix("0x") {
            Some(digits) if digits.starts_with(|c: char| c.is_ascii_hexdigit()) => {
                u32::from_str_radix(digits, 16).ok()
            }
            Some(_) => None,
            None => text.parse().ok(),
        };
        let both = text.split_once('/');
        let both = both.and_then(|(value, mask)| Some((number(value)?, number(mask)?)));
        let (value, mask) = both.ok_or_else(|| {
            let shown: String = text.chars().take(40).collect();
            format!("{shown:?} is no mark, expected VALUE/MASK such as 0x10/0x30")
        })?;
        PacketMark::new(value, mask)
    }
}

impl TryFrom<String> for PacketMark {
    type Error = String;

    fn try_from(text: String) -> Result<Self, String> {
        text.parse()
    }
}

impl From<PacketMark> for String {
    fn from(mark: PacketMark) -> String {
        mark.to_string()
    }
}

#[cfg(test)]
mod tests {
    use super::PacketMark;

    #[test]
    fn marks_are_read_and_leave_the_bits_of_others() {
        let mark: PacketMark = "0x10/0x30".parse().expect("a mark");
        assert_eq!(mark, PacketMark::OFFLINE);
        assert_eq!(mark.to_string().parse(), Ok(mark));
        assert_eq!("16/48".parse(), Ok(mark));
        assert_eq!(mark.over(0x4000_4021), 0x4000_4011);
        for wrong in [
            "",
            "0x10",
            "0x10/",
            "0x/0x30",
            "0x+1/1",
            "0/0x30",
            "0x40/0x30",
            "1/-1",
            "x/1",
            "0x100000000/0x1",
        ] {
            assert!(wrong.parse::<PacketMark>().is_err(), "{wrong}");
        }
    }

    #[test]
    fn the_default_is_none_of_the_marks_of_others() {
        let is_ours = |mark: u32| mark & PacketMark::OFFLINE.mask() == PacketMark::OFFLINE.value();
        for theirs in [
            0x4000,
            0x8000,
            0x0f00,
            0x1e00,
            0xffff_0000,
            0x2000,
            0x80,
            1_337,
            0x4844_4c45,
            0x4844_4c46,
        ] {
            assert!(!is_ours(theirs), "{theirs:#x}");
        }
    }
}
