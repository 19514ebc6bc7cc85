//! Tries out hooks where they affect no program, to find out what a machine supports.

use std::fs::File;
use std::io;
use std::net::{IpAddr, Ipv4Addr, TcpListener};
use std::os::fd::{AsFd, BorrowedFd};

use aya::Ebpf;
use heddle_model::Cidr;

use super::bpf::Packets;
use super::{HookError, Kind, Nft, Options, Pod, Range, loaded};
use crate::namespace::within;
use crate::{Exclude, Fate, PodId};

/// Programs grouped by the name of the hook, as an operator would look for it.
pub(crate) const GROUPS: [(&str, &[(&str, &str)]); 7] = [
    ("connect", &[loaded::AT_PODS[5], loaded::AT_PODS[6]]),
    ("sendmsg", &[loaded::AT_PODS[3], loaded::AT_PODS[4]]),
    ("getpeername", &[loaded::AT_PODS[1], loaded::AT_PODS[2]]),
    ("sockops", &[loaded::AT_PODS[0], loaded::AT_OWN[0]]),
    ("getsockopt", &[loaded::AT_OWN[1]]),
    ("packets", &[loaded::AT_PACKETS]),
    ("sk_lookup", &[loaded::ARRIVE, loaded::GUARD_ARRIVE]),
];

/// Tables for the trial, and the places to which programs are attached for a moment.
pub(crate) struct Trial<'a> {
    object: Ebpf,
    cgroup: &'a File,
    netns: BorrowedFd<'a>,
}

impl<'a> Trial<'a> {
    pub(crate) fn new(cgroup: &'a File, netns: BorrowedFd<'a>) -> Result<Self, HookError> {
        Ok(Trial {
            object: loaded::object(0)?,
            cgroup,
            netns,
        })
    }

    /// Loads and attaches programs, for the lifetime of the trial at most.
    pub(crate) fn attach(&mut self, programs: &[(&str, &str)]) -> Result<(), HookError> {
        let object = &mut self.object;
        for program @ (name, what) in programs.iter().copied() {
            loaded::load(object, name, what)?;
            if program == loaded::AT_PACKETS {
                let mut packets = Packets::default();
                packets.attach(object, None, self.cgroup.as_fd())?;
                drop(packets.guard(object, None, self.netns, 0)?);
                continue;
            }
            match program == loaded::ARRIVE || program == loaded::GUARD_ARRIVE {
                true => loaded::link(object, program, self.netns).map(drop)?,
                false => loaded::attach(object, program, self.cgroup.as_fd())?,
            }
        }
        Ok(())
    }
}

/// Installs packet filter rules in a namespace.
pub(crate) fn try_nft(netns: BorrowedFd<'_>) -> Result<(), HookError> {
    let unusable = |error: io::Error| HookError::refused("a network namespace", &error);
    let address = IpAddr::V4(Ipv4Addr::new(192, 0, 2, 1));
    let network = Cidr::new(address, 32);
    let mut nft = Nft::open(&Options {
        pods_cgroup: "".into(),
        own_cgroup: "".into(),
        bpffs: None,
        ranges: network
            .map(|network| Range {
                network,
                inside: true,
            })
            .into_iter()
            .collect(),
        kind: Kind::Nft,
    })?;
    let listener = within(netns, || TcpListener::bind((Ipv4Addr::UNSPECIFIED, 0)));
    let listener = listener.and_then(|made| made).map_err(unusable)?;
    let exclude = Exclude::default();
    let pod = Pod {
        id: PodId(0),
        netns,
        addresses: &[address],
        outbound: &listener,
        inbound: &listener,
        exclude: &exclude,
        fate: Fate::Refuse,
    };
    nft.enroll(&pod)?;
    nft.died()
}
