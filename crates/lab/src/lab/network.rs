//! The links, addresses and routes of a lab.
//!
//! ```text
//!     hl-NAME-underlay          ┌───────── br0 ─────────┐
//!                            to1│                       │to2
//!     hl-NAME-node-…      eth0 ─┴─ pods           eth0 ─┴─ pods
//!                                 │p1  │p2                │p1
//!     hl-NAME-pod-…             eth0  eth0              eth0
//! ```
//!
//! The indices of links are chosen here, so no link has to be looked up: lo is 1, a bridge or a pod's eth0 is 2, a
//! node's eth0 is 3, the ports of a bridge have 100 + N.

use std::net::IpAddr;
use std::os::fd::AsRawFd;

use anyhow::{Context, bail};
use rtnetlink::packet_route::address::{AddressAttribute, AddressFlags, AddressHeaderFlags};
use rtnetlink::packet_route::link::{InfoData, InfoVeth};
use rtnetlink::packet_route::route::RouteScope;
use rtnetlink::{
    Handle, LinkBridge, LinkMessageBuilder, LinkUnspec, LinkVeth, RouteMessageBuilder,
};

use super::address::{self, FAMILIES, Range};
use super::namespace::Namespace;
use super::plan::{NodePlan, PodPlan};

/// Index of a bridge in its namespace, and of eth0 of a pod.
const FIRST: u32 = 2;
/// Index of a node's link to the underlay.
const UPLINK: u32 = 3;
/// Port N of a bridge has the index PORTS + N.
const PORTS: u32 = 100;

/// Makes the underlay's bridge.
///
/// # Errors
/// The kernel refuses.
pub(super) fn underlay(underlay: &Namespace) -> anyhow::Result<()> {
    underlay.inside(async |handle| {
        bridge(&handle, "br0", 0).await?;
        for family in FAMILIES {
            let (hub, bits) = (address::hub(family), address::underlay_bits(family));
            add_address(&handle, FIRST, hub, bits).await?;
        }
        Ok(())
    })
}

/// Connects a node with the underlay, and gives both the routes to each other's networks.
///
/// # Errors
/// The kernel refuses.
pub(super) fn node(
    plan: &NodePlan,
    all: &[NodePlan],
    node: &Namespace,
    underlay: &Namespace,
) -> anyhow::Result<()> {
    let number = plan.number;
    underlay.inside(async |handle| {
        veth(&handle, ("to", number), (node, UPLINK), None).await?;
        for family in FAMILIES {
            let via = address::underlay(number, family);
            add_route(&handle, FIRST, address::pods(number, family), Some(via)).await?;
        }
        Ok(())
    })?;
    node.inside(async |handle| {
        bridge(&handle, "pods", number).await?;
        bring_up(&handle, UPLINK).await?;
        for family in FAMILIES {
            let (own, bits) = (
                address::underlay(number, family),
                address::underlay_bits(family),
            );
            add_address(&handle, UPLINK, own, bits).await?;
            let gateway = address::gateway(number, family);
            add_address(&handle, FIRST, gateway, address::all_bits(gateway)).await?;
            add_route(&handle, FIRST, address::pods(number, family), None).await?;
            for other in all.iter().filter(|other| other.number != number) {
                let via = address::underlay(other.number, family);
                let range = address::pods(other.number, family);
                add_route(&handle, UPLINK, range, Some(via)).await?;
            }
        }
        Ok(())
    })
}

/// Connects pods with their node.
///
/// # Errors
/// The kernel refuses.
pub(super) fn pods(
    node_plan: &NodePlan,
    node: &Namespace,
    pods: &[(&PodPlan, Namespace)],
) -> anyhow::Result<()> {
    node.inside(async |handle| {
        for (plan, pod) in pods {
            // The pod's number determines its MAC address: after a pod is replaced, neighbours with a cached entry
            // for its IP address reach the new pod at once.
            let own = hardware_address(node_plan.number, plan.number);
            let made = veth(&handle, ("p", plan.number), (pod, FIRST), Some(own)).await;
            made.with_context(|| plan.workload.to_string())?;
        }
        Ok(())
    })?;
    for (plan, pod) in pods {
        pod.inside(async |handle| {
            bring_up(&handle, FIRST).await?;
            for family in FAMILIES {
                let Some(own) = plan.address(family) else {
                    continue;
                };
                let range = address::pods(node_plan.number, family);
                add_address(&handle, FIRST, own, range.bits).await?;
                let gateway = address::gateway(node_plan.number, family);
                let bits = address::all_bits(gateway);
                let alone = Range {
                    first: gateway,
                    bits,
                };
                add_route(&handle, FIRST, alone, None).await?;
                let everything = Range {
                    first: match gateway {
                        IpAddr::V4(_) => IpAddr::from([0; 4]),
                        IpAddr::V6(_) => IpAddr::from([0; 16]),
                    },
                    bits: 0,
                };
                add_route(&handle, FIRST, everything, Some(gateway)).await?;
            }
            Ok(())
        })?;
    }
    Ok(())
}

/// Removes the link of a pod; the kernel removes the other end, in the pod, with it.
///
/// # Errors
/// The kernel refuses.
pub(super) fn unplug(node: &Namespace, pod: &PodPlan) -> anyhow::Result<()> {
    node.inside(async |handle| {
        let link = PORTS + u32::from(pod.number);
        match handle.link().del(link).execute().await {
            // The link is gone already, with the namespace of its other end.
            Err(rtnetlink::Error::NetlinkError(error))
                if error.raw_code() == -rustix::io::Errno::NODEV.raw_os_error() =>
            {
                Ok(())
            }
            done => done.with_context(|| format!("cannot remove link {link}")),
        }
    })
}

/// MAC address of a pod's eth0. 0x02 is the locally administered bit.
fn hardware_address(node: u16, pod: u16) -> [u8; 6] {
    let ([_, node], [high, low]) = (node.to_be_bytes(), pod.to_be_bytes());
    [0x02, 0x68, 0x6d, node, high, low]
}

/// Sets a link up.
///
/// # Errors
/// The kernel refuses.
pub(super) async fn bring_up(handle: &Handle, index: u32) -> anyhow::Result<()> {
    let message = LinkUnspec::new_with_index(index).up().build();
    let done = handle.link().set(message).execute().await;
    done.with_context(|| format!("cannot set link {index} up"))
}

async fn bridge(handle: &Handle, name: &str, number: u16) -> anyhow::Result<()> {
    // A bridge without its own MAC address takes a port's, and changes it as ports come and go.
    let [high, low] = number.to_be_bytes();
    let message = LinkBridge::new(name)
        .index(FIRST)
        .address(vec![0x02, 0x68, 0x6c, 0, high, low])
        .up()
        .build();
    let done = handle.link().add(message).execute().await;
    made(done, "bridge").with_context(|| format!("cannot make the bridge {name}"))
}

/// Makes a veth pair: one end here, as a port of the bridge, up; the other as eth0 with `index` in `other`. The
/// caller sets that end up afterwards, once both exist.
async fn veth(
    handle: &Handle,
    (prefix, port): (&str, u16),
    (other, index): (&Namespace, u32),
    address: Option<[u8; 6]>,
) -> anyhow::Result<()> {
    let mut peer = LinkMessageBuilder::<LinkUnspec>::new()
        .name("eth0")
        .index(index)
        .setns_by_fd(other.fd().as_raw_fd());
    if let Some(address) = address {
        peer = peer.address(address.to_vec());
    }
    let peer = peer.build();
    let name = format!("{prefix}{port}");
    let message = LinkVeth::new(&name, "eth0")
        // The kernel uses the given index of the peer only if this end's index is given too.
        .index(PORTS + u32::from(port))
        .set_info_data(InfoData::Veth(InfoVeth::Peer(peer)))
        .controller(FIRST)
        .up()
        .build();
    let done = handle.link().add(message).execute().await;
    made(done, "veth").with_context(|| format!("cannot make the link {name}"))
}

/// Adds the remedy if the kernel does not know this kind of link.
fn made(done: Result<(), rtnetlink::Error>, kind: &str) -> anyhow::Result<()> {
    let unknown = matches!(&done, Err(rtnetlink::Error::NetlinkError(message))
        if message.raw_code() == -rustix::io::Errno::OPNOTSUPP.raw_os_error());
    match unknown {
        true => bail!("the kernel has no links of kind {kind} (modprobe {kind})"),
        false => Ok(done?),
    }
}

async fn add_address(handle: &Handle, link: u32, address: IpAddr, bits: u8) -> anyhow::Result<()> {
    let mut request = handle.address().add(link, address, bits);
    if address.is_ipv6() {
        let message = request.message_mut();
        message.header.flags |= AddressHeaderFlags::Nodad;
        let flags = AddressAttribute::Flags(AddressFlags::Nodad);
        message.attributes.push(flags);
    }
    let done = request.execute().await;
    done.with_context(|| format!("cannot give link {link} the address {address}/{bits}"))
}

/// Adds a route via a gateway, or an on-link route if `via` is `None`.
async fn add_route(
    handle: &Handle,
    link: u32,
    to: Range,
    via: Option<IpAddr>,
) -> anyhow::Result<()> {
    let mut builder = RouteMessageBuilder::<IpAddr>::new()
        .destination_prefix(to.first, to.bits)?
        .output_interface(link);
    builder = match via {
        Some(via) => builder.gateway(via)?,
        None => builder.scope(RouteScope::Link),
    };
    let done = handle.route().add(builder.build()).execute().await;
    done.with_context(|| format!("cannot add the route to {to}"))
}
